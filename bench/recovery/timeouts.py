"""One coherent set of timeouts for all layers, derived from what the pilot measured.

Every layer finds a hang by some timeout, so a timeout is most of its recovery time: too short, and it restarts a
healthy job; too long, and the layer looks worse than it is. All of them come from the same three figures by the same
margins, so that layers are compared and not settings. The order among them is a condition for their working (RULES).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

from bench.errors import BadInput, near

MARGIN = 3.0  # a silence is a hang when it is this many times the longest one that the job's work has
SHARE_OF_STARTUP = 0.5  # at a start a rank waits in one call for the slowest to come; imports, before it, are the rest
HANG_FLOOR_S = 5.0  # a busy machine keeps healthy ranks silent for a few seconds
ALONE_FLOOR_S = 10.0  # as above, for waits that nobody renews
STARTUP_FLOOR_S = 30.0
GROUP_FLOOR_S = 60.0

# Defaults of the libraries (NVRx 0.4.1 and 0.7.0, torch 2.13): reached by real jobs, and scaled down for tiny ones.
DEFAULT_GRACE_S = 5.0
DEFAULT_MISSING_RANK_S = 30.0
DEFAULT_IN_PROCESS_INTERVAL_S = 1.0
DEFAULT_CHECK_INTERVAL_S = 5.0
DEFAULT_WORKERS_STOP_S = 30.0
DEFAULT_MONITOR_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Timeouts:
    """Seconds. The rest is derived from the first three."""

    step_s: float
    save_s: float  # longest blocking save or load
    startup_s: float  # launch to first step

    # ft_launcher's heartbeats and sections (in_job, nested)
    rank_heartbeat_s: float
    initial_heartbeat_s: float  # from a rank's greeting to its first heartbeat
    nested_heartbeat_s: float  # nested: in place of rank_heartbeat_s, for the Wrapper inside must act first
    section_setup_s: float
    section_step_s: float
    section_checkpointing_s: float
    out_of_section_s: float

    # inprocess.Wrapper (in_process, nested)
    soft_s: float  # no progress: abort and restart in place
    hard_s: float  # no progress: the rank is ended
    grace_s: float  # from SIGTERM to SIGKILL at the hard timeout
    missing_rank_s: float  # no heartbeat of a rank's monitor: that rank is gone
    in_process_interval_s: float  # how often its monitors look
    last_call_s: float  # how long it collects further faults before it acts
    barrier_s: float  # how long its ranks wait for each other, at the start and after a fault
    completion_s: float  # how long the first at the end waits for the last

    # process groups
    collective_s: float  # in_job, in_process, nested: must not pre-empt their own search for hangs
    collective_alone_s: float  # none, torchrun, pod_restart, requeue: nothing else finds a hang

    # agents
    workers_stop_s: float  # from SIGTERM to SIGKILL when an agent stops its workers (torchrun: 30 s, fixed)
    monitor_interval_s: float  # how often an agent looks at its workers
    check_interval_s: float  # how often ft_launcher's monitors look at heartbeats and sections
    rendezvous_s: float  # how long ranks and agents wait for each other to come

    def problems(self) -> list[str]:
        """What is out of order, one line "recovery.timeouts.X: rule; remedy" each; empty: all is well."""
        return [rule.text(self) for rule in RULES if not rule.holds(self)]

    def require_order(self) -> None:
        """Raises BadInput with the first problem."""
        if problems := self.problems():
            raise BadInput(problems[0])

    def lines(self) -> list[str]:
        """One "name  seconds" a line, for printing."""
        width = max(len(field.name) for field in fields(self))
        return [f"{name:<{width}}  {value:.3g} s" for name, value in asdict(self).items()]

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, float]) -> Timeouts:
        """Raises TypeError for missing and unknown names."""
        return cls(**record)


class Rule(NamedTuple):
    """`field` must exceed `bound(timeouts)`, which `bound_name` puts into words; `why`: what happens else."""

    field: str
    bound_name: str
    bound: Callable[[Timeouts], float]
    why: str

    def holds(self, timeouts: Timeouts) -> bool:
        return bool(getattr(timeouts, self.field) > self.bound(timeouts))

    def text(self, timeouts: Timeouts) -> str:
        value, bound = getattr(timeouts, self.field), self.bound(timeouts)
        return (
            f"recovery.timeouts.{self.field}: must exceed {self.bound_name} ({bound:.3g} s), else {self.why}; "
            f"got {value:.3g}, give more or leave it out"
        )


def _work(t: Timeouts) -> float:
    return t.step_s + t.save_s


def _field(name: str) -> Callable[[Timeouts], float]:
    return lambda timeouts: float(getattr(timeouts, name))


_WORK = "the longest save or load and a step"
_ALARM = "a healthy job is taken for hung"
RULES = (
    Rule("rank_heartbeat_s", _WORK, _work, _ALARM),
    Rule("initial_heartbeat_s", "startup_s", _field("startup_s"), _ALARM),
    Rule("section_setup_s", "startup_s", _field("startup_s"), _ALARM),
    Rule("section_step_s", "step_s", _field("step_s"), _ALARM),
    Rule("section_checkpointing_s", "the longest save or load", _field("save_s"), _ALARM),
    Rule("out_of_section_s", "step_s", _field("step_s"), _ALARM),
    Rule("check_interval_s", "0 s", lambda t: 0.0, "monitors never rest"),
    Rule("monitor_interval_s", "0 s", lambda t: 0.0, "agents never rest"),
    Rule("in_process_interval_s", "0 s", lambda t: 0.0, "monitors never rest"),
    Rule("rank_heartbeat_s", "check_interval_s", _field("check_interval_s"), "monitors look too rarely to see it"),
    Rule("soft_s", _WORK, _work, _ALARM),
    Rule("soft_s", "in_process_interval_s", _field("in_process_interval_s"), "the Wrapper refuses to start"),
    Rule("missing_rank_s", "in_process_interval_s", _field("in_process_interval_s"), "the Wrapper refuses to start"),
    Rule("hard_s", "soft_s and last_call_s", lambda t: t.soft_s + t.last_call_s, "ranks die before they can restart"),
    Rule(
        "barrier_s", "hard_s and grace_s", lambda t: t.hard_s + t.grace_s, "survivors give up before a hung rank is out"
    ),
    Rule("barrier_s", "missing_rank_s", _field("missing_rank_s"), "survivors give up before a lost rank is noticed"),
    Rule("barrier_s", "startup_s", _field("startup_s"), "ranks give up before the slowest has started"),
    Rule(
        "nested_heartbeat_s", "hard_s and grace_s", lambda t: t.hard_s + t.grace_s, "the agent acts before the Wrapper"
    ),
    Rule(
        "collective_s",
        "hard_s and grace_s",
        lambda t: t.hard_s + t.grace_s,
        "it pre-empts the Wrapper's hang detection",
    ),
    Rule(
        "collective_s",
        "rank_heartbeat_s, check_interval_s and monitor_interval_s",
        lambda t: t.rank_heartbeat_s + t.check_interval_s + t.monitor_interval_s,
        "it pre-empts ft_launcher's hang detection",
    ),
    Rule(
        "collective_s", "nested_heartbeat_s", _field("nested_heartbeat_s"), "it pre-empts ft_launcher's hang detection"
    ),
    Rule("collective_alone_s", _WORK, _work, _ALARM),
    Rule("rendezvous_s", "startup_s", _field("startup_s"), "ranks give up before the slowest has started"),
)


def derive(
    step_s: float,
    save_s: float,
    startup_s: float,
    overrides: Mapping[str, float] | None = None,
    absent_s: float = 0.0,
) -> Timeouts:
    """The set for a job whose step takes `step_s`, its longest blocking save or load `save_s`, its start `startup_s`.

    `overrides` (recovery.timeouts) replaces fields by name, and what is derived from a replaced one follows it.
    `absent_s`: the longest time that a node may rightly be away (node_return_s, back-off). Raises BadInput for an
    unknown name; the order is the caller's to require.
    """
    given = {"step_s": step_s, "save_s": save_s, "startup_s": startup_s} | dict(overrides or {})
    for name in given:
        if name not in NAMES:
            raise BadInput(f"recovery.timeouts.{name}: unknown timeout; {near(name, NAMES)}")
    return Timeouts(**_filled(given, absent_s))


def unmeasured() -> Timeouts:
    """For launches before the pilot has shown anything: those of a job whose saves take a minute."""
    return derive(step_s=1.0, save_s=60.0, startup_s=90.0)


NAMES = tuple(field.name for field in fields(Timeouts))


def _filled(t: dict[str, float], absent_s: float) -> dict[str, float]:
    """`t` with the rest added, each from those before it; setdefault leaves what the user gave."""
    step_s, save_s, startup_s = t["step_s"], t["save_s"], t["startup_s"]
    silence_s = max(HANG_FLOOR_S, MARGIN * (step_s + save_s), SHARE_OF_STARTUP * startup_s)
    start_s = max(STARTUP_FLOOR_S, MARGIN * startup_s)
    heartbeat_s = t.setdefault("rank_heartbeat_s", silence_s)
    t.setdefault("initial_heartbeat_s", start_s)
    t.setdefault("section_setup_s", start_s)
    t.setdefault("section_step_s", max(HANG_FLOOR_S, MARGIN * step_s, SHARE_OF_STARTUP * startup_s))
    t.setdefault("section_checkpointing_s", silence_s)
    t.setdefault("out_of_section_s", silence_s)
    check_s = t.setdefault("check_interval_s", min(DEFAULT_CHECK_INTERVAL_S, heartbeat_s / 5))
    monitor_s = t.setdefault("monitor_interval_s", DEFAULT_MONITOR_INTERVAL_S)
    t.setdefault("workers_stop_s", min(DEFAULT_WORKERS_STOP_S, max(3.0, heartbeat_s / 6)))

    soft_s = t.setdefault("soft_s", silence_s)
    hard_s = t.setdefault("hard_s", soft_s + max(5.0, soft_s / 2))
    grace_s = t.setdefault("grace_s", DEFAULT_GRACE_S)
    t.setdefault("missing_rank_s", min(DEFAULT_MISSING_RANK_S, max(HANG_FLOOR_S, soft_s / 2)))
    t.setdefault("in_process_interval_s", min(DEFAULT_IN_PROCESS_INTERVAL_S, soft_s / 20))
    t.setdefault("last_call_s", min(DEFAULT_IN_PROCESS_INTERVAL_S, soft_s / 20))
    barrier_s = t.setdefault("barrier_s", max(hard_s * 4 / 3, hard_s + grace_s + 5.0, start_s))
    t.setdefault("completion_s", barrier_s)

    nested_s = t.setdefault("nested_heartbeat_s", max(hard_s + grace_s, heartbeat_s) + silence_s)
    t.setdefault("collective_s", max(GROUP_FLOOR_S, 2 * max(nested_s, heartbeat_s + check_s + monitor_s)))
    t.setdefault("collective_alone_s", max(ALONE_FLOOR_S, 5 * (step_s + save_s), startup_s))
    t.setdefault("rendezvous_s", max(GROUP_FLOOR_S, start_s) + absent_s)
    return t
