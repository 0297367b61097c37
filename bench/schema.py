"""The formats that outlive a process: events, samples and the result summary.

Everything here is data and its rules; it imports nothing of the suite. Times inside events are seconds of the host's
monotonic clock; each process writes one pair (monotonic, wall) so that they can be dated.

History of the result schema (`SCHEMA_VERSION`); an unknown version is refused, never guessed at:
  1  first version
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1
EVENT_VERSION = 1

# --- events -----------------------------------------------------------------------------------------------------------
# One JSON object a line, one file per process incarnation, written with a single write(2) a line: what a killed process
# had finished is on record. Every line has "kind" and "seq" (0, 1, 2 ... without gaps within a file).
#   meta     first line: version, role, launch, node, local_rank, rank, world_size, incarnation, pid, pid_start, token,
#            mono, wall
#   begin    name, t: a span was entered; closed by the span of the same name, or never (the process died in it)
#   span     name, t0, t1, and attributes; spans of one file never overlap
#   instant  name, t, and attributes

Role = Literal["worker", "writer", "runner"]

# Top-level spans of a worker and the ledger category each belongs to (steps are split further, see measure.ledger).
SPAN_CATEGORY = {
    "step": "useful",
    "save": "ckpt_stall",  # attributes: save (index), phases [[name, t0, t1], ...]
    "poll": "ckpt_stall",  # the strategy looks, between steps, whether its write has finished
    "peers": "ckpt_peers",
    "arrive": "arrive",
    "drain": "ckpt_drain",
    "load": "load",
}

CATEGORIES = (
    "startup",
    "useful",
    "replay",
    "aborted_step",
    "ckpt_stall",
    "ckpt_peers",
    "arrive",
    "interference",
    "ckpt_drain",
    "detect",
    "stop",
    "restart",
    "load",
    "idle",
    "shutdown",
    "unattributed",
)

# Sub-phases of a save, in the order in which they happen; no strategy invents others.
PHASES = ("wait_previous", "stage", "plan", "write", "enqueue", "commit")

# What a step was for ("use" attribute of a step span).
#   warm     right after the launch or a warm-up save; never measured      control  no write in flight, measured
#   after    from a save until its write is durable everywhere, and at least the configured number
#   settle   lets the machine calm down after a write; not measured         plain    a step of the full design
STEP_USES = ("warm", "control", "after", "settle", "plain")


# --- figures and records ----------------------------------------------------------------------------------------------
#   ci95        95 % confidence, over cycles and launches
#   within_run  95 % confidence, over the cycles of fewer than 3 launches: how launches differ is not in it
#   range       the extreme values: too few for an interval
Interval = Literal["ci95", "range", "within_run"]

# What bounds an arm's writes (see measure.limits).
LIMITS = ("store", "serialisation", "staging", "slowest rank")


@dataclass(frozen=True)
class Figure:
    """A measured quantity: median of n samples with an interval whose kind is named. Unit: the field's name says it."""

    median: float
    low: float
    high: float
    n: int
    interval: Interval


@dataclass(frozen=True)
class Check:
    """One validity check: `level` ok | note | warn | invalid. A note informs; it does not change the status."""

    name: str
    level: Literal["ok", "note", "warn", "invalid"]
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Sample:
    """One save at job level (over all ranks), a row of samples.parquet. Seconds and bytes; null: not measured."""

    launch: int
    occasion: int
    cycle: int
    arm: str
    save: int  # index of this arm's saves in this launch, from 0
    step: int  # steps finished when the save was called
    measured: bool  # False: warm-up (the first two saves of an arm in a launch) or content verification
    blocking_s: float | None  # S
    durable_s: float | None  # L
    cost_s: float | None  # K
    hidden_s: float | None  # K - S
    control_step_s: float | None  # t, of the same cycle
    during_steps: int  # steps run while the write was in flight
    slowdown_share: float | None  # sigma: 1 - 1/x for steps x times longer
    period_s: float | None  # measured time from this save's last rank in to the next one's (full design only)
    arrive_s: float | None  # longest wait at the barrier before the save
    peers_s: float | None  # longest wait for slower ranks after the save
    write_s: float | None  # first writer's begin to the last writer's durable
    written_bytes: int | None
    write_bytes_per_s: float | None
    dirty_bytes: int | None
    phases: dict[str, float] = field(default_factory=dict)  # slowest rank's seconds in each sub-phase
    interval_steps: int | None = None  # steps between saves (full design only)
    write_imbalance: float | None = None  # slowest rank's own writing time as a multiple of the ranks' median
    delete_s: float | None = None  # longest time a rank spent deleting old checkpoints; None: nothing was deleted


@dataclass(frozen=True)
class LedgerRow:
    """Slot-seconds of one category. `arm` is None for what belongs to no arm (startup, shutdown ...)."""

    launch: int
    slot: str  # "node/local_rank"
    arm: str | None
    category: str
    seconds: float


@dataclass(frozen=True)
class Arm:
    """The figures of one arm in summary.json; see METHOD.md for every field."""

    name: str
    strategy: str
    cycles: int
    launches: int
    cost_s: Figure | None = None
    blocking_s: Figure | None = None
    hidden_s: Figure | None = None
    durable_s: Figure | None = None
    first_save_s: Figure | None = None
    step_s: Figure | None = None
    load_cold_s: Figure | None = None
    load_warm_s: Figure | None = None
    share: Figure | None = None
    stall_share: Figure | None = None
    period_s: float | None = None
    period_at_40_s: float | None = None
    written_bytes: int | None = None
    write_bytes_per_s: Figure | None = None
    storage_ceiling_share: float | None = None
    dirty_bytes: Figure | None = None
    saturated: bool | None = None
    content_verified: bool | None = None
    goodput: float | None = None
    slowdown_share: Figure | None = None
    launch_medians_cost_s: list[float] = field(default_factory=list)
    write_s: Figure | None = None  # first writer's begin to the last writer's durable
    delete_s: Figure | None = None
    flush_s: Figure | None = None
    staging_bytes_per_s: Figure | None = None  # per rank
    staging_ceiling_share: float | None = None
    limited_by: str | None = None  # one of LIMITS
    peak_host_bytes: Figure | None = None  # above the control, the worst node (launches with a single arm only)
    peak_shm_bytes: Figure | None = None
    peak_device_bytes: Figure | None = None


@dataclass(frozen=True)
class Verdict:
    """A published claim held against this result."""

    claim: str
    published: str
    measured: str | None
    outcome: Literal["holds", "does_not_hold", "not_decided", "not_measured"]
    text: str


@dataclass(frozen=True)
class Summary:
    """summary.json. Unknown is None, never 0."""

    scenario: str
    machine: str
    device: Literal["cpu", "cuda"]
    rehearsal: bool
    design: str
    world_size: int
    num_nodes: int
    versions: dict[str, str | None]
    status: Literal["valid", "warn", "invalid"]
    interrupted: bool
    checks: list[Check]
    budget: dict[str, Any]
    arms: list[Arm]
    ledger: list[dict[str, Any]]  # {arm, category, seconds, share}
    verdicts: list[Verdict]
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    layers: list[dict[str, Any]] = field(default_factory=list)
    probe_bytes_per_s: Figure | None = None
    d2h_bytes_per_s: Figure | None = None  # pinned device-to-host bandwidth of one GPU
    # {arm, interval_steps, compute_s, period_s, share, predicted_share, saturated, agree}
    sweep: list[dict[str, Any]] = field(default_factory=list)
    stamps: list[str] = field(default_factory=list)  # what every reader of these figures must know
    time_unit: str = "slot-seconds"  # "GPU-seconds" on CUDA
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
