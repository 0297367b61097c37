"""The resolved configuration of a run: everything that it needs to know, in one frozen record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, get_type_hints

from bench.config.checks import finite, positive, require
from bench.config.cluster import Cluster
from bench.config.parts import Budget, Checkpoint, Data, Design, Job, Model, Storage, Train
from bench.config.recovery import Fault, Faults, Recovery

LEAST_INTERVAL = 5  # steps between saves of a run with faults


@dataclass(frozen=True)
class Run:
    """Everything a run needs to know. Sizes in units of their names; see conf/ for what each key means to a user."""

    scenario: str = "ckpt_local"
    about: str = ""  # what the scenario answers, one line
    num_nodes: int = 1
    ranks_per_node: int = 2
    device: str = "auto"  # auto: cuda where there are enough GPUs, else cpu; a cluster scenario asks for cuda
    launches: int = 3  # quick: measured launches
    cycles: int = 6  # quick: cycles a launch, warm-up cycles included
    blocks: int = 3  # full: blocks of one launch per arm
    seed: int = 42
    machine: str | None = None  # name under results/; None: the host's name
    results_dir: str = "results"
    work_dir: str | None = None  # node-local; None: bench-work-<uid> in the temporary folder
    price_per_gpu_hour: float | None = None
    launch_deadline_s: float | None = None  # None: derived from the pilot
    state: str | None = None  # shapes_of:PATH, a checkpoint whose shapes and dtypes are saved in place of the model's
    state_bytes: int | None = None  # size of that checkpoint, filled in by bench.train.shapes.settled
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    train: Train = field(default_factory=Train)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    storage: Storage = field(default_factory=Storage)
    design: Design = field(default_factory=Design)
    job: Job = field(default_factory=Job)
    budget: Budget = field(default_factory=Budget)
    cluster: Cluster = field(default_factory=Cluster)
    recovery: Recovery = field(default_factory=Recovery)
    faults: Faults = field(default_factory=Faults)
    dry_run: bool = False
    resume: str | None = None
    append: str | None = None

    def __post_init__(self) -> None:
        for name in ("num_nodes", "ranks_per_node", "launches", "cycles", "blocks"):
            positive(name, getattr(self, name))
        positive("price_per_gpu_hour", self.price_per_gpu_hour)
        positive("launch_deadline_s", self.launch_deadline_s)
        require(self.device in ("auto", "cpu", "cuda"), "device", f"must be auto, cpu or cuda, got {self.device!r}")
        throttled = self.storage.throttle_bytes_per_s is not None
        require(
            not throttled or self.cluster.name in ("local", "emulated"),
            "storage.throttle_bytes_per_s",
            f"works on this machine only, not with cluster={self.cluster.name}; leave it out",
        )
        require(
            not throttled or self.state is not None or self.model.parameters is not None,
            "storage.throttle_bytes_per_s",
            "makes a store as large as the checkpoints need, and how large those of model.target are is not known "
            "before it runs; leave it out, or give storage.dir=PATH of a slow store",
        )
        require(
            self.train.seq_len <= self.model.max_seq_len or bool(self.model.target),
            "train.seq_len",
            f"must not exceed model.max_seq_len={self.model.max_seq_len}, got {self.train.seq_len}",
        )
        self._require_state()
        self._require_recovery()
        self._require_design()
        finite(asdict(self))

    def _require_design(self) -> None:
        """What the design asks of the rest: that a launch can measure something."""
        design = self.design
        sweeps = design.name == "sweep"
        require(
            sweeps == bool(self.checkpoint.intervals),
            "checkpoint.intervals",
            "goes with design=sweep, and a sweep needs it, e.g. checkpoint.intervals=[2,8,32]",
        )
        alone = "has one interval, which predicts no other; give two or more, or use design=full checkpoint.interval=N"
        require(len(self.checkpoint.intervals) != 1, "checkpoint.intervals", alone)
        if design.name in ("quick", "calibrate"):
            least = design.warmup_saves + 1
            require(
                self.cycles >= least,
                "cycles",
                f"must be at least {least} ({least - 1} are warm-up, see design.warmup_saves), got {self.cycles}",
            )
        if design.name in ("full", "sweep"):
            wrong = (
                f"must name `none` in design={design.name}, since K is the period less that of the arm without saves, "
                f"got {self.checkpoint.arms}; add none"
            )
            require("none" in self.checkpoint.arms, "checkpoint.arms", wrong)
        if design.name == "full" and self.checkpoint.interval != "auto":
            self._require_room(self.checkpoint.interval)

    def _require_room(self, interval: int) -> None:
        """Full design: a launch holds one measured period at least."""
        room, saves = self.train.steps_after_warmup, self.design.saves_for(1)
        require(
            interval <= room,
            "checkpoint.interval",
            f"{interval} steps is longer than the run's {room} steps after warm-up; raise train.steps or lower it",
        )
        require(
            interval * saves <= room,
            "train.steps",
            f"must hold {saves} intervals ({interval * saves} steps) after warm-up, since the first "
            f"{self.design.warmup_saves} saves are not measured and a period ends at the save after it, got {room}; "
            "raise train.steps or lower checkpoint.interval",
        )

    def _require_recovery(self) -> None:
        """What a run with faults asks of the rest."""
        asked = self.design.name == "recovery"
        struck = bool(self.faults.given) or self.faults.count > 0
        wrong = "goes with design=recovery, and that needs it, e.g. recovery.layers=[in_job,in_process]"
        require(asked == bool(self.recovery.layers), "recovery.layers", wrong)
        require(not struck or asked, "faults", "strike in design=recovery only; add design=recovery, or faults=none")
        if not asked:
            return
        require(struck, "faults", "design=recovery needs at least one; give faults.given or faults.count and weights")
        saving = [arm for arm in self.checkpoint.arms if arm != "none"]
        wrong = f"must name the one strategy that recoveries load from, got {self.checkpoint.arms}"
        require(len(saving) == 1 == len(self.checkpoint.arms), "checkpoint.arms", wrong)
        twice = len(set(self.recovery.layers)) < len(self.recovery.layers)
        require(not twice, "recovery.layers", f"names a layer twice: {self.recovery.layers}; list each once")
        interval = self.checkpoint.interval
        enough = interval == "auto" or interval >= LEAST_INTERVAL
        wrong = (
            f"must be at least {LEAST_INTERVAL} steps, so that losses after a resume can be compared, got {interval}"
        )
        require(enough, "checkpoint.interval", wrong)

    def _require_state(self) -> None:
        """What the kind of state asks of the rest."""
        sharding, (kind, _, path) = self.train.sharding, (self.state or "").partition(":")
        alone = f"{sharding} needs 2 ranks or more (on one, FSDP1 does not shard); use train.sharding=fsdp2"
        require(sharding == "fsdp2" or self.world_size > 1, "train.sharding", alone)
        positive("state_bytes", self.state_bytes)
        if self.state is None:
            require(self.state_bytes is None, "state_bytes", "is found in the checkpoint of `state`; leave it out")
            return
        wrong = f"must be shapes_of:PATH with an existing DCP or torch checkpoint, got {self.state!r}"
        require(kind == "shapes_of" and bool(path), "state", wrong)
        wrong = "holds shapes and no model to compute with; add train.compute=paced train.step_s=SECONDS"
        require(self.train.compute == "paced", "state", wrong)
        wrong = f"{sharding} cuts a model, and a state of given shapes has none; leave train.sharding out"
        require(sharding == "fsdp2", "train.sharding", wrong)

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.ranks_per_node

    @property
    def ranks_of_last_node(self) -> int:
        """With the reserve, which is on the last node. Nodes are alike, so it is what every one must have room for."""
        return self.ranks_per_node + self.recovery.reserve

    @property
    def predicted_checkpoint_bytes(self) -> int | None:
        """Bytes of one checkpoint over all ranks; None for a user's model and for a state not yet looked at."""
        if self.state is not None:
            return self.state_bytes
        n = self.model.parameters
        return None if n is None else n * self.train.bytes_per_param


def run_from_json(record: dict[str, Any]) -> Run:
    """A Run from its `dataclasses.asdict` form, validated again. Unknown fields raise TypeError."""
    hints = get_type_hints(Run)
    parts = {
        f.name: hints[f.name](**record[f.name])
        for f in fields(Run)
        if is_dataclass(hints[f.name]) and f.name in record and f.name != "faults"
    }
    if "faults" in record:
        given = [Fault(**fault) for fault in record["faults"]["given"]]
        parts["faults"] = Faults(**{**record["faults"], "given": given})
    return Run(**{**record, **parts})
