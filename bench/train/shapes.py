"""Names, shapes and dtypes of an existing checkpoint, read without torch, without tensor data, and executing nothing.

A DCP checkpoint describes its tensors in the pickle `.metadata`; a torch.save file (a zip archive) describes them in
the pickle `data.pkl`, its data lying beside it. Unpickling runs what the pickle names. Here every name leads to a
harmless stand-in instead, so that a stranger's checkpoint may be looked at, on a machine that has no torch.
"""

from __future__ import annotations

import dataclasses
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from bench.config import Run, require
from bench.errors import BadInput

ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
STORAGES = {  # torch's names for typed memory
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar")  # of torch.save files in a folder
REMEDY = "give the folder of a DCP checkpoint, a torch.save file, or a folder of one such file a rank"


class Shape(NamedTuple):
    """A tensor without its data."""

    dtype: str  # torch's name for it: "float32"
    size: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        count = ITEM_BYTES[self.dtype]
        for length in self.size:
            count *= length
        return count


def settled(config: Run, elsewhere: bool = False) -> Run:
    """For the driver: the configuration with `state`'s path made absolute and its bytes known. Raises BadInput.

    `elsewhere`: this machine need not see what the nodes see; a path that is not here is looked for there.
    """
    if config.state is None:
        return config
    path = path_of(config.state)
    if elsewhere and not path.exists():
        require(path.is_absolute(), "state", f"{path} is not here; give the absolute path that it has on the nodes")
        return dataclasses.replace(config, state_bytes=None)
    path = path.resolve()
    return dataclasses.replace(config, state=f"shapes_of:{path}", state_bytes=shapes_bytes(path))


def path_of(state: str) -> Path:
    """The path in "shapes_of:PATH" (whose form bench.config.Run checks)."""
    return Path(state.partition(":")[2])


def shapes_bytes(path: Path) -> int:
    """Bytes of the checkpoint's tensors over all ranks. Raises BadInput."""
    return sum(shape.nbytes for shape in read_shapes(path).values())


def read_shapes(path: Path) -> dict[str, Shape]:
    """The tensors of a checkpoint by name, each whole. What is not a tensor is left out. Raises BadInput."""
    if not path.exists():
        raise refused(path, "does not exist")
    if (path / ".metadata").is_file():
        found = read_dcp(path / ".metadata")
    elif path.is_dir():
        found = read_folder(path)
    else:
        found = read_file(path)
    if not found:
        raise refused(path, "holds no tensor")
    return found


def refused(path: Path, reason: str) -> BadInput:
    return BadInput(f"state: {path} {reason}; {REMEDY}")


# --- the two formats
def read_dcp(path: Path) -> dict[str, Shape]:
    try:
        with path.open("rb") as file:
            metadata = Reader(file).read(path)
    except OSError as error:
        raise refused(path, f"is not readable ({error.strerror})") from None
    entries = attribute(metadata, "state_dict_metadata")
    if not isinstance(entries, dict):
        raise refused(path, "is no description of a DCP checkpoint")
    tensors = {str(name): entry for name, entry in entries.items() if attribute(entry, "size") is not None}
    return {name: dcp_shape(entry, name, path) for name, entry in tensors.items()}


def dcp_shape(entry: Any, name: str, path: Path) -> Shape:
    """A TensorStorageMetadata; the state of its TensorProperties is a tuple that begins with the dtype."""
    properties = getattr(attribute(entry, "properties"), "state", None)
    dtype = properties[0] if isinstance(properties, tuple) and properties else attribute(entry, "dtype")
    if not isinstance(dtype, DType):
        raise refused(path, f"describes {name} in a way that this version does not know")
    return Shape(dtype.name, entry.state["size"])


def read_file(path: Path) -> dict[str, Shape]:
    """A torch.save file. Tensors that are the same memory count once, under the first of their names."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise refused(path, "is a zip archive, but not one of torch.save")
            with archive.open(pickles[0]) as file:
                return shapes_in(Reader(file), path)
    except zipfile.BadZipFile:
        raise refused(path, "is damaged, or was not written by torch.save of torch 1.6 or later") from None
    except OSError as error:
        raise refused(path, f"is not readable ({error.strerror})") from None


def shapes_in(reader: Reader, path: Path) -> dict[str, Shape]:
    found: dict[tuple[Any, ...], tuple[str, Shape]] = {}
    for name, tensor in tensors_in(reader.read(path), "", set()):
        found.setdefault(tensor.memory, (name, tensor.shape))
    if reader.undescribed():
        raise refused(path, "holds memory in a form that this version does not know (quantized tensors, bare storages)")
    by_name = dict(found.values())
    if len(by_name) < len(found):
        raise refused(path, "holds two tensors whose names read alike")
    return by_name


def read_folder(path: Path) -> dict[str, Shape]:
    """One file a rank: parts of one name are joined along their first dimension, which keeps the sum of their bytes.

    Parts that do not fit together (another dtype, other further dimensions) stand for themselves.
    """
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise refused(path, f"holds neither .metadata nor a file that ends in {', '.join(SUFFIXES)}")
    whole: dict[str, Shape] = {}
    for file in files:
        for name, part in read_file(file).items():
            known = whole.get(name)
            if known is None:
                whole[name] = part
            elif part.size and (known.dtype, known.size[1:]) == (part.dtype, part.size[1:]):
                whole[name] = Shape(part.dtype, (known.size[0] + part.size[0], *part.size[1:]))
            else:
                whole[f"{file.relative_to(path)}:{name}"] = part
    return whole


def tensors_in(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor below `value`, also inside objects of unknown classes, with the keys that lead to it."""
    if isinstance(value, Tensor):
        yield name or "tensor", value
    elif id(value) not in seen:  # objects may refer to each other in circles
        seen.add(id(value))
        for key, child in children_of(value):
            yield from tensors_in(child, f"{name}.{key}" if name else str(key), seen)


def children_of(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, StandIn):
        return [*enumerate(value.items), ("state", value.state)]
    return []


# --- pickles that execute nothing
class DType(NamedTuple):
    name: str


@dataclasses.dataclass
class Storage:
    key: str
    dtype: str | None  # None: bytes without a type, which their tensor states
    described: bool = False  # by a tensor


class Tensor(NamedTuple):
    shape: Shape
    memory: tuple[Any, ...]  # equal for tensors that are the same elements of the same memory


class StandIn:
    """An object of a class that was not imported: what it was made from, and the state that it was given."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> StandIn:
        made = super().__new__(cls)
        made.items, made.state = [*arguments, *keywords.values()], None
        return made

    items: list[Any]
    state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:  # a subclass of dict
        self.items.append(value)

    def append(self, value: Any) -> None:  # a subclass of list
        self.items.append(value)

    def add(self, value: Any) -> None:  # a subclass of set
        self.items.append(value)


def attribute(value: Any, name: str) -> Any:
    state = getattr(value, "state", None)
    return state.get(name) if isinstance(state, dict) else None


class Reader(pickle.Unpickler):
    """An unpickler that knows torch's tensors and a few plain containers, and stands in for everything else."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.storages: list[Storage] = []  # all memory that the pickle refers to

    def read(self, path: Path) -> Any:
        """What the pickle describes. A damaged one can fail in any way that damaged bytes can."""
        try:
            return self.load()
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise refused(path, f"cannot be read ({type(error).__name__}: {error})") from None

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in ITEM_BYTES:
            return DType(name)
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        return KNOWN.get((module, name)) or type(name, (StandIn,), {})

    def persistent_load(self, record: Any) -> Storage:
        """torch.save's reference to memory: ("storage", class, key, device, number of elements)."""
        _, kind, key, *_ = record
        self.storages.append(Storage(key, kind if isinstance(kind, str) else None))
        return self.storages[-1]

    def undescribed(self) -> set[str]:
        """Keys of memory that no tensor describes: its bytes would be missing."""
        described = {storage.key for storage in self.storages if storage.described}
        return {storage.key for storage in self.storages} - described


def _tensor(storage: Storage, offset: int, size: Any, stride: Any, *_: Any) -> Tensor:
    storage.described = True
    return Tensor(Shape(storage.dtype or "uint8", tuple(size)), (storage.key, offset, tuple(size), tuple(stride)))


def _tensor_of_untyped_memory(storage: Storage, offset: int, size: Any, stride: Any, *rest: Any) -> Tensor:
    _requires_grad, _hooks, dtype, *_ = rest
    storage.dtype = dtype.name
    return _tensor(storage, offset, size, stride)


def _first(value: Any, *_: Any) -> Any:
    return value


def _of_subclass(rebuild: Any, _subclass: Any, arguments: Any, state: Any) -> Any:
    """A subclass is made like a tensor, or wraps others: of a DTensor, only the local tensor is part of the state."""
    if rebuild in KNOWN.values():
        return rebuild(*arguments)
    attributes = state[1] if isinstance(state, tuple) else state
    return attributes.get("_local_tensor", StandIn(state)) if isinstance(attributes, dict) else StandIn(state)


KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): tuple,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_untyped_memory,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _of_subclass,
}
