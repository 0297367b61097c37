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
#
# Of launches with faults. A worker's file lives through restarts in place; an "attempt" is one call of the training
# function. `aborted: true` in a span: an exception left it, so what it timed was not finished.
#   worker   attempt {number, group, rank, world_size, layer}   joined {rank, world_size}   caught {error}   reserve
#            abort, aborted {device_bytes?}: the Wrapper's abort hook began, this rank is through it   measured_end
#            span load {arm, step, resume: true}   span check {at: saved|restored|end, step}: the instrument's own time
#            state {at, step, position, world_size, rank, sum, digest}   effective {timeout: seconds ...}
#   runner   launch_begin, launch_end   started {pid, pid_start, local_rank (null: an agent), attempt}
#            exited {pid, local_rank, code}   gone {pid, pid_start, role, local_rank}   away {fault}, back
#            detected {source: "launcher_log", text}   restart {attempt, backoff_s, scope: node|job}
#            undone {fault, evidence: {left?: what could not be undone; null: it could in the end}}
#            oom_kill {fault, count}   unavailable {fault, kind, reason}
# faults/<id>.json: {id, kind, at, step, node, local_rank, rank, pid, pid_start, mono, wall, actor, details}, written
# exclusively and synced before the fault acts.

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
# No part of a run's time but the instrument's own, taken out of every figure: "check" (fingerprints of the state).

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

# Kinds of launches that go on after faults, from their newest checkpoint: with some, and the same without any.
STRUCK, TWIN = "recovery", "twin"
ENDURING = (STRUCK, TWIN)

# Status of a launch that waits for the engine to start the job again, and all of one that has not come to an end.
RELAUNCHING = "relaunching"
UNFINISHED = ("planned", "running", RELAUNCHING)

# Sub-phases of a save, in the order in which they happen; no strategy invents others.
PHASES = ("wait_previous", "stage", "plan", "write", "enqueue", "commit")

# What a step was for ("use" attribute of a step span).
#   warm     right after the launch or a warm-up save; never measured      control  no write in flight, measured
#   after    from a save until its write is durable everywhere, and at least the configured number
#   settle   lets the machine calm down after a write; not measured         plain    a step of the full design
STEP_USES = ("warm", "control", "after", "settle", "plain")

SYNCED = "+fsync"  # of an arm's name: it syncs what it writes, whatever storage.fsync says


def strategy_of(arm: str) -> str:
    """An arm is a strategy, or one that syncs although the run does not."""
    return arm.removesuffix(SYNCED)


def syncs(arm: str, fsync: bool) -> bool:
    """Whether an arm's writes are synced before they count as durable, in a run of that storage.fsync."""
    return fsync or arm.endswith(SYNCED)


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


# What came of a fault.
#   recovered      the job stepped again after something had been started anew, or came to its end so
#   tolerated      nothing had to be started anew, and steps went on
#   not_recovered  neither, until the launch ended or its deadline passed
#   not_fired      it never struck                        unavailable   this machine cannot do it; see `reason`
RecoveryOutcome = Literal["recovered", "tolerated", "not_recovered", "not_fired", "unavailable"]
RecoveryLayer = Literal["in_process", "in_job", "torchrun", "pod_restart", "requeue"]


@dataclass(frozen=True)
class Recovery:
    """One episode: a fault, those that struck before the job stepped again, and what came of it; see METHOD.md.

    Or one planned fault that did not strike (`episode` is None). Seconds without the instrument's own time; null: a
    point without evidence. Steps are counts of finished steps.
    """

    launch: int
    occasion: int
    block: int
    arm: str
    layer: str  # that the launch ran under
    episode: int | None  # in the launch, from 0
    fault: str  # kind of its first fault
    label: str  # that fault in words: with the moment and what else makes it another fault
    at: str
    faults: list[str]  # ids of the planned faults that belong to it
    node: int
    local_rank: int
    rank: int | None  # of the slot at that moment
    outcome: RecoveryOutcome
    reason: str = ""  # of unavailable and not_fired, and of not_recovered as far as it is known
    layer_used: RecoveryLayer | None = None  # by evidence
    fault_step: int | None = None
    resumed_step: int | None = None
    lost_steps: int | None = None  # fault_step - resumed_step
    detect_s: float | None = None  # the parts, in order; catch_up_s comes after the recovery itself
    stop_s: float | None = None
    queue_s: float | None = None  # until the engine had started the job again; null where none was asked to
    restart_s: float | None = None
    load_s: float | None = None
    first_step_s: float | None = None
    catch_up_s: float | None = None
    time_to_recover_s: float | None = None  # fault to the first step's end on the last rank
    time_to_catch_up_s: float | None = None  # fault to the end of the step that was to be finished then
    gpu_seconds_lost: float | None = None  # slot-seconds, over all slots
    detected_by: str | None = None  # "abort" | "launcher_log" | "exit"
    processes_kept: float | None = None  # share of the struck processes that are part of the new generation
    outlived: int | None = None  # processes of the struck generation still there when the new one was ready
    attempts: int | None = None  # how many times the job was started anew until it stepped
    world_size_before: int | None = None
    world_size_after: int | None = None
    resume_exact: bool | None = None  # as the twin without faults; null at another world size
    resume_consistent: bool | None = None  # checksum and data position after the load are those of the save
    device_bytes_after_stop: int | None = None
    instrument_s: float | None = None  # taken out between fault and first step
    points_s: dict[str, float | None] = field(default_factory=dict)  # since the fault, the instrument's time in them
    further_faults: int = 0  # planned to strike while the job recovers from `fault`

    @property
    def single(self) -> bool:
        """One fault alone was planned and struck: the time of a cascade is no time of a recovery."""
        return not self.further_faults and len(self.faults) <= 1


@dataclass(frozen=True)
class FaultFigures:
    """What one layer made of one fault, over episodes."""

    fault: str  # a Recovery's label
    episodes: int  # of faults that struck
    outcomes: dict[str, int]  # RecoveryOutcome -> episodes, planned faults that did not strike among them
    layers_used: dict[str, int]  # RecoveryLayer -> recovered episodes
    exact: dict[str, int]  # "yes" | "no" | "unknown" -> recovered episodes
    time_to_recover_s: Figure | None
    time_to_catch_up_s: Figure | None
    parts: dict[str, Figure | None]  # detect_s, stop_s, queue_s, restart_s, load_s, first_step_s, catch_up_s
    lost_steps: Figure | None
    gpu_seconds_lost: Figure | None
    further_faults: int = 0  # a Recovery's


@dataclass(frozen=True)
class LayerFigures:
    """One recovery layer over its launches."""

    layer: str
    launches: int
    overhead_share: Figure | None  # share of time that steps take longer than the twin's, before any fault
    goodput: float | None  # useful over all slot-seconds
    false_alarms: int  # restarts without a fault
    faults: list[FaultFigures]


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
    recoveries: list[Recovery] = field(default_factory=list)
    layers: list[LayerFigures] = field(default_factory=list)
    probe_bytes_per_s: Figure | None = None  # with the run's own storage.fsync
    synced_probe_bytes_per_s: Figure | None = None  # with fsync, where it is off and some arms sync all the same
    d2h_bytes_per_s: Figure | None = None  # pinned device-to-host bandwidth of one GPU
    # {arm, interval_steps, compute_s, period_s, share, predicted_share, saturated, agree}
    sweep: list[dict[str, Any]] = field(default_factory=list)
    stamps: list[str] = field(default_factory=list)  # what every reader of these figures must know
    time_unit: str = "slot-seconds"  # "GPU-seconds" on CUDA
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
