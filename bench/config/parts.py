"""What is trained, saved, stored and asked: the groups of a run's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.config.checks import positive, require, zero_or_more
from bench.errors import BadInput, near


@dataclass(frozen=True)
class Model:
    name: str = "tiny"
    target: str | None = None  # a user's "package.module.Class"; called with `kwargs`; overrides the own decoder
    kwargs: dict[str, Any] = field(default_factory=dict)
    vocab_size: int = 256
    dim: int = 512
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    ffn_dim: int = 1216
    max_seq_len: int = 1024
    rope_theta: float = 10000.0
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "dim", "layers", "heads", "kv_heads", "ffn_dim", "max_seq_len"):
            positive(f"model.{name}", getattr(self, name))
        require(self.dim % self.heads == 0, "model.heads", f"must divide model.dim={self.dim}, got {self.heads}")
        require(
            self.heads % self.kv_heads == 0,
            "model.kv_heads",
            f"must divide model.heads={self.heads}, got {self.kv_heads}",
        )

    @property
    def parameters(self) -> int | None:
        """Parameter count of the own decoder; None for a user's model, which is counted when it is built."""
        if self.target:
            return None
        head_dim = self.dim // self.heads
        attention = 2 * self.dim * self.dim + 2 * self.dim * self.kv_heads * head_dim
        block = attention + 3 * self.dim * self.ffn_dim + 2 * self.dim
        embeddings = self.vocab_size * self.dim * (1 if self.tie_embeddings else 2)
        return self.layers * block + embeddings + self.dim


@dataclass(frozen=True)
class Data:
    name: str = "source_text"
    path: str | None = None  # tokens: the file
    dtype: str = "uint16"  # tokens: the file's element type
    max_bytes: int = 8_000_000  # source_text: how much text is read

    def __post_init__(self) -> None:
        known = ("source_text", "tokens", "synthetic")
        require(self.name in known, "data.name", f"unknown data source {self.name!r}; {near(self.name, known)}")
        require(
            self.dtype in ("uint16", "uint32", "int32", "int64"),
            "data.dtype",
            f"must be uint16, uint32, int32 or int64, got {self.dtype!r}",
        )
        positive("data.max_bytes", self.max_bytes)
        require(
            self.name != "tokens" or bool(self.path), "data.path", "data=tokens needs a token file; give data.path=FILE"
        )


@dataclass(frozen=True)
class Train:
    steps: int = 40  # horizon of the learning rate; full design: of a launch, unless an automatic interval needs more
    warmup_steps: int = 3  # steps before anything is measured
    batch_size: int = 2  # sequences per rank and step
    seq_len: int = 64
    lr: float = 1e-3
    lr_warmup_steps: int = 10
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    param_dtype: str = "float32"  # of parameters and optimizer state: float32 (12 B/param) or bfloat16 (6 B/param)
    compute_dtype: str = "auto"  # auto: bfloat16 on CUDA, float32 on CPU
    sharding: str = "fsdp2"  # fsdp2, fsdp1_local (LOCAL_STATE_DICT) or fsdp1_sharded (SHARDED_STATE_DICT)
    use_orig_params: bool = False  # fsdp1_sharded: the optimizer sees the model's parameters, not flat ones
    threads: int = 1  # CPU threads of a rank
    compute: str = (
        "real"  # real, or paced: a step takes step_s and computes nothing (calibration; interference unmeasured)
    )
    step_s: float | None = None  # paced: the length of a step

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "seq_len", "lr", "clip_norm", "threads"):
            positive(f"train.{name}", getattr(self, name))
        for name in ("warmup_steps", "lr_warmup_steps", "weight_decay"):
            zero_or_more(f"train.{name}", getattr(self, name))
        require(self.compute in ("real", "paced"), "train.compute", f"must be real or paced, got {self.compute!r}")
        require(
            (self.compute == "paced") == (self.step_s is not None),
            "train.step_s",
            "goes with train.compute=paced, and paced needs it; give both or neither",
        )
        positive("train.step_s", self.step_s)
        require(
            self.param_dtype in ("float32", "bfloat16"),
            "train.param_dtype",
            f"must be float32 or bfloat16, got {self.param_dtype!r}",
        )
        require(
            self.compute_dtype in ("auto", "float32", "bfloat16"),
            "train.compute_dtype",
            f"must be auto, float32 or bfloat16, got {self.compute_dtype!r}",
        )
        self._require_sharding()

    def _require_sharding(self) -> None:
        known = ("fsdp2", "fsdp1_local", "fsdp1_sharded")
        wrong = f"unknown sharding {self.sharding!r}; {near(self.sharding, known)}"
        require(self.sharding in known, "train.sharding", wrong)
        why_not = {
            "fsdp1_local": "saves LOCAL_STATE_DICT but cannot load it: FSDP1 then does not know its flat parameters",
            "fsdp2": "is an option of FSDP1; FSDP2 always keeps the model's own parameters",
        }
        if self.use_orig_params and self.sharding in why_not:
            remedy = "leave it out or use train.sharding=fsdp1_sharded"
            raise BadInput(f"train.use_orig_params: {why_not[self.sharding]}; {remedy}")

    @property
    def steps_after_warmup(self) -> int:
        return self.steps - self.warmup_steps

    @property
    def bytes_per_param(self) -> int:
        """Checkpoint bytes per parameter: weight and two Adam moments."""
        return 12 if self.param_dtype == "float32" else 6


@dataclass(frozen=True)
class Checkpoint:
    arms: list[str] = field(default_factory=lambda: ["none", "sync_local", "nvrx_async"])
    interval: Any = "auto"  # steps between saves, or "auto" from the pilot
    intervals: list[int] = field(default_factory=list)  # sweep: the intervals, in steps
    keep: int = 2
    deadline_s: float = 120.0
    verify_content: bool = True
    api: str = (
        "queue"  # nvrx_async: "queue" (own function, durable) or "torch_async" (the published TorchAsyncCheckpoint)
    )
    replication: int = 0  # nvrx_local: on how many nodes each shard is kept; 0: on its own only
    synthetic: dict[str, float] = field(default_factory=dict)  # calibrate: known durations of the synthetic strategy

    def __post_init__(self) -> None:
        require(
            len(self.arms) > 0,
            "checkpoint.arms",
            "is empty; name at least one strategy, e.g. checkpoint.arms=[none,sync_local]",
        )
        require(
            len(set(self.arms)) == len(self.arms),
            "checkpoint.arms",
            f"names a strategy twice: {self.arms}; list each once",
        )
        auto = self.interval == "auto"
        whole = isinstance(self.interval, int) and not isinstance(self.interval, bool)
        require(
            auto or (whole and self.interval > 0),
            "checkpoint.interval",
            f"must be a whole number of steps greater than 0 or auto, got {self.interval!r}",
        )
        require(
            all(interval > 0 for interval in self.intervals) and len(set(self.intervals)) == len(self.intervals),
            "checkpoint.intervals",
            f"must be different whole numbers of steps greater than 0, got {self.intervals}",
        )
        require(self.keep >= 1, "checkpoint.keep", f"must be 1 or more, got {self.keep}")
        positive("checkpoint.deadline_s", self.deadline_s)
        require(
            self.replication == 0 or self.replication >= 2,
            "checkpoint.replication",
            f"must be 0 (a shard stays on its own node) or at least 2 nodes, got {self.replication}",
        )
        require(
            self.api in ("queue", "torch_async"), "checkpoint.api", f"must be queue or torch_async, got {self.api!r}"
        )


@dataclass(frozen=True)
class Storage:
    dir: str | None = None  # None: a folder below work_dir
    fsync: bool = True
    provisioned_bytes_per_s: float | None = None
    probe: bool = True
    throttle_bytes_per_s: int | None = None  # a store of this speed is made for the run (root, this machine only)

    def __post_init__(self) -> None:
        positive("storage.provisioned_bytes_per_s", self.provisioned_bytes_per_s)
        positive("storage.throttle_bytes_per_s", self.throttle_bytes_per_s)
        both = self.throttle_bytes_per_s is not None and self.dir is not None
        require(not both, "storage.throttle_bytes_per_s", "makes its own store; leave out storage.dir, or the throttle")
        wrong = "limits what is synced, and unsynced writes never meet it; set storage.fsync=true, or leave it out"
        require(self.throttle_bytes_per_s is None or self.fsync, "storage.throttle_bytes_per_s", wrong)


@dataclass(frozen=True)
class Design:
    name: str = "quick"
    control_steps: int = 4  # before each save, no write in flight
    after_steps: int = 4  # at least so many after a save, and until its write is durable (k of cost_s)
    settle_steps: int = 1
    warmup_saves: int = 2  # saves of each arm and launch that are not measured
    sweep_saves: int = 6  # sweep: measured periods a launch, each from a save to the next
    twins: bool = True  # recovery: a launch without faults beside each block, which the others are compared with

    def __post_init__(self) -> None:
        known = ("quick", "full", "sweep", "calibrate", "recovery")
        require(self.name in known, "design", f"unknown design {self.name!r}; {near(self.name, known)}")
        for name in ("control_steps", "after_steps", "settle_steps", "sweep_saves"):
            positive(f"design.{name}", getattr(self, name))
        require(
            self.warmup_saves >= 2,
            "design.warmup_saves",
            f"must be 2 or more (a writer's start disturbs the period after the first save), got {self.warmup_saves}",
        )

    def saves_for(self, periods: int) -> int:
        """Saves of a launch that measures so many periods: the warm-up, and one more that ends the last period."""
        return self.warmup_saves + periods + 1


@dataclass(frozen=True)
class Job:
    """The user's own job, at whose period the verdict is given."""

    step_s: float | None = None
    interval_steps: int | None = None
    period_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("step_s", "interval_steps", "period_s"):
            positive(f"job.{name}", getattr(self, name))
        require(
            (self.step_s is None) == (self.interval_steps is None),
            "job.step_s and job.interval_steps",
            "belong together; give both, or job.period_s alone",
        )
        require(
            self.period_s is None or self.step_s is None,
            "job.period_s",
            "contradicts job.step_s x job.interval_steps; give one of the two",
        )


@dataclass(frozen=True)
class Budget:
    minutes: float | None = None
    gpu_hours: float | None = None

    def __post_init__(self) -> None:
        positive("budget.minutes", self.minutes)
        positive("budget.gpu_hours", self.gpu_hours)
