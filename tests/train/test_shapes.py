"""Reading what a checkpoint holds: names, shapes, dtypes; nothing executed, no data read, anything odd refused."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections import OrderedDict, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from bench.config import Run, Train, run_from_json
from bench.errors import BadInput
from bench.train.shapes import ITEM_BYTES, Shape, read_shapes, settled, shapes_bytes

ROOT = Path(__file__).parents[2]
PACED = Train(compute="paced", step_s=0.1)


def saved(content: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def of(tensor: torch.Tensor) -> Shape:
    return Shape(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


# --- the formats
@pytest.mark.parametrize("name", sorted(ITEM_BYTES))
def test_every_dtype_has_its_width_and_is_read_from_a_torch_file(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    tensor = torch.empty(3, 2, dtype=dtype)
    assert ITEM_BYTES[name] == tensor.itemsize
    assert read_shapes(saved({"t": tensor}, tmp_path / "t.pt")) == {"t": Shape(name, (3, 2))}
    assert shapes_bytes(tmp_path / "t.pt") == tensor.nbytes


def test_a_torch_file_of_a_model_and_its_optimizer_is_read_in_full(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "where": Path("x")}
    found = read_shapes(saved(content, tmp_path / "all.pt"))
    expected = {f"model.{name}": of(tensor) for name, tensor in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        expected |= {f"optimizer.state.{number}.{name}": of(tensor) for name, tensor in moments.items()}
    assert found == expected


class Holder:
    """A class of which the reader knows nothing."""

    def __init__(self) -> None:
        self.inner = {"w": torch.zeros(2, 3)}
        self.me = self


def test_tensors_inside_lists_subclasses_and_unknown_objects_are_found(tmp_path: Path) -> None:
    grouped = defaultdict(list, {"a": torch.zeros(5)})
    content = [OrderedDict(p=nn.Parameter(torch.zeros(4))), (grouped,), Holder(), nn.Buffer(torch.zeros(6))]
    found = read_shapes(saved(content, tmp_path / "odd.pt"))
    assert sorted(shape.size for shape in found.values()) == [(2, 3), (4,), (5,), (6,)]


@pytest.mark.usefixtures("group_of_one")
def test_a_dtensor_counts_the_part_that_its_file_holds(tmp_path: Path) -> None:
    mesh = init_device_mesh("cpu", (1,))
    part = DTensor.from_local(
        torch.zeros(2, 3), mesh, [Shard(0)], run_check=False, shape=torch.Size([8, 3]), stride=(3, 1)
    )
    found = read_shapes(saved({"w": part}, tmp_path / "rank0.pt"))
    assert list(found.values()) == [Shape("float32", (2, 3))]


def test_tied_weights_count_once_as_they_are_written_once(tmp_path: Path) -> None:
    weight = torch.zeros(3, 3)
    found = read_shapes(saved({"embed": weight, "head": weight, "row": weight[0]}, tmp_path / "tied.pt"))
    assert found == {"embed": Shape("float32", (3, 3)), "row": Shape("float32", (3,))}


def test_a_dcp_checkpoint_is_read_from_its_metadata_alone(tmp_path: Path) -> None:
    state = {"model": {"w": torch.zeros(5, 3, dtype=torch.bfloat16)}, "step": torch.zeros(()), "note": {"lr": 0.1}}
    dcp.save(state, checkpoint_id=tmp_path, no_dist=True)
    for data in tmp_path.glob("*.distcp"):
        data.unlink()
    assert read_shapes(tmp_path) == {"model.w": Shape("bfloat16", (5, 3)), "step": Shape("float32", ())}
    assert shapes_bytes(tmp_path) == 5 * 3 * 2 + 4


def test_files_of_single_ranks_are_joined_and_no_byte_is_lost(tmp_path: Path) -> None:
    parts = [
        {"w": torch.zeros(4, 3), "step": torch.zeros(()), "first": torch.zeros(2)},
        {"w": torch.zeros(3, 3), "step": torch.zeros(()), "odd": torch.zeros(5)},
        {"w": torch.zeros(3, 2), "step": torch.zeros(()), "odd": torch.zeros(5, dtype=torch.int8)},
    ]
    files = [saved(part, tmp_path / f"tp_{number}" / "state.pt") for number, part in enumerate(parts)]
    (tmp_path / "config.json").write_text("{}")
    found = read_shapes(tmp_path)
    assert found["w"] == Shape("float32", (7, 3))
    assert sum(shape.nbytes for shape in found.values()) == sum(shapes_bytes(file) for file in files)
    assert {shape.size for name, shape in found.items() if name.endswith("step")} == {()}


# --- what is refused
def spoil_nothing_there(path: Path) -> None:
    assert not path.exists()


def spoil_empty_folder(path: Path) -> None:
    path.mkdir()


def spoil_no_archive(path: Path) -> None:
    path.write_bytes(b"no zip file at all")


def spoil_other_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


def spoil_truncated(path: Path) -> None:
    whole = saved({"w": torch.zeros(100)}, path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def spoil_no_tensor(path: Path) -> None:
    saved({"step": 3}, path)


def spoil_quantized(path: Path) -> None:
    saved({"w": torch.zeros(3), "s": torch.zeros(4).untyped_storage()}, path)


def spoil_alike(path: Path) -> None:
    saved({1: torch.zeros(3), "1": torch.zeros(4)}, path)


def spoil_metadata(path: Path) -> None:
    path.mkdir()
    (path / ".metadata").write_bytes(b"\x80\x04N.")


def spoil_torn_metadata(path: Path) -> None:
    dcp.save({"w": torch.zeros(3)}, checkpoint_id=path, no_dist=True)
    whole = (path / ".metadata").read_bytes()
    (path / ".metadata").write_bytes(whole[:-20])


REFUSED = {
    spoil_nothing_there: "does not exist",
    spoil_empty_folder: "holds neither .metadata nor a file that ends in",
    spoil_no_archive: "is damaged, or was not written by torch.save",
    spoil_other_archive: "is a zip archive, but not one of torch.save",
    spoil_truncated: "is damaged",
    spoil_no_tensor: "holds no tensor",
    spoil_quantized: "holds memory in a form that this version does not know",
    spoil_alike: "holds two tensors whose names read alike",
    spoil_metadata: "is no description of a DCP checkpoint",
    spoil_torn_metadata: "cannot be read",
}


@pytest.mark.parametrize("spoil", REFUSED, ids=lambda spoil: spoil.__name__.removeprefix("spoil_"))
def test_what_cannot_be_read_in_full_is_bad_input_with_a_remedy_on_one_line(spoil: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    spoil(path)
    with pytest.raises(BadInput) as caught:
        read_shapes(path)
    message = str(caught.value)
    assert message.startswith(f"state: {path}")
    assert REFUSED[spoil] in message
    assert message.endswith(
        "give the folder of a DCP checkpoint, a torch.save file, or a folder of one such file a rank"
    )
    assert "\n" not in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["x.pt", ".metadata"])
def test_a_file_without_permission_is_bad_input(name: str, tmp_path: Path) -> None:
    file = saved({"w": torch.zeros(2)}, tmp_path / name)
    file.chmod(0)
    with pytest.raises(BadInput, match=r"is not readable \(Permission denied\)"):
        read_shapes(tmp_path)


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def test_a_checkpoint_that_wants_something_executed_is_only_looked_at(tmp_path: Path) -> None:
    target = tmp_path / "made by the pickle"
    path = saved({"w": torch.zeros(3), "bomb": Bomb(target)}, tmp_path / "bomb.pt")
    assert read_shapes(path) == {"w": Shape("float32", (3,))}
    assert not target.exists()
    torch.load(path, weights_only=False)  # the bomb is armed
    assert target.exists()


def test_shapes_are_read_without_torch(tmp_path: Path) -> None:
    path = saved({"w": torch.zeros(3, 2)}, tmp_path / "w.pt")
    code = (
        "import sys; from pathlib import Path; from bench.train.shapes import shapes_bytes\n"
        "print(shapes_bytes(Path(sys.argv[1])), 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "24 False\n"


# --- in the configuration
def test_the_driver_learns_the_bytes_and_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved({"w": torch.zeros(3, 2)}, tmp_path / "w.pt")
    monkeypatch.chdir(tmp_path)
    config = Run(state="shapes_of:w.pt", train=PACED)
    assert config.predicted_checkpoint_bytes is None
    known = settled(config)
    assert (known.state, known.predicted_checkpoint_bytes) == (f"shapes_of:{tmp_path / 'w.pt'}", 24)
    assert settled(known) == known
    assert run_from_json(asdict(known)) == known
    assert settled(Run()) == Run()


def test_a_checkpoint_that_only_the_nodes_see_is_left_to_them(tmp_path: Path) -> None:
    config = Run(state="shapes_of:/claim/big", train=PACED)
    assert settled(config, elsewhere=True) == config
    with pytest.raises(BadInput, match=r"^state: /claim/big does not exist"):
        settled(config)
    with pytest.raises(BadInput, match=r"^state: claim/big is not here; give the absolute path"):
        settled(Run(state="shapes_of:claim/big", train=PACED), elsewhere=True)
    path = saved({"w": torch.zeros(3, 2)}, tmp_path / "w.pt")
    assert settled(Run(state=f"shapes_of:{path}", train=PACED), elsewhere=True).state_bytes == 24


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"state": "shapes_of:"}, "^state: must be shapes_of:PATH"),
        ({"state": "some/path"}, "^state: must be shapes_of:PATH"),
        ({"train": Train()}, "^state: holds shapes .* add train.compute=paced train.step_s=SECONDS"),
        ({"train": Train(compute="paced", step_s=1.0, sharding="fsdp1_local")}, "^train.sharding: fsdp1_local cuts"),
        ({"state": None, "state_bytes": 3}, "^state_bytes: is found in the checkpoint"),
        ({"state_bytes": 0}, "^state_bytes: must be greater than 0"),
    ],
)
def test_a_state_of_given_shapes_is_refused_where_it_cannot_work(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Run(**({"state": "shapes_of:x", "train": PACED} | changes))
