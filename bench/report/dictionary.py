"""The data dictionary: what every column of every table and record means, with its unit. The only place that says it.

A test holds it against bench.schema, both ways: a field without a meaning fails, and so does a meaning without a field.
`Figure` columns stand in CSV tables as NAME (median), NAME_low, NAME_high, NAME_n and NAME_interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Entry(NamedTuple):
    unit: str
    meaning: str


SHARE, BYTES, S = "share of 1", "bytes", "s"

SAMPLES = {
    "launch": Entry("index", "launch that the save belongs to"),
    "occasion": Entry("index", "0 for the run itself; append= adds occasions"),
    "cycle": Entry("index", "cycle of the quick design; -1 for saves after the measured part"),
    "arm": Entry("name", "the way of saving"),
    "save": Entry("index", "of this arm's saves in this launch, from 0"),
    "step": Entry("steps", "steps finished when the save was called"),
    "measured": Entry("true/false", "false: warm-up or content check, in no figure"),
    "blocking_s": Entry(S, "S: last rank in to last rank out of the save"),
    "durable_s": Entry(S, "L: last rank in until the last shard is durable and visible"),
    "cost_s": Entry(S, "K: what the save truly cost, slower steps and waiting included"),
    "hidden_s": Entry(S, "K - S: what a stopwatch around the save does not see"),
    "control_step_s": Entry(S, "t: step with no write in flight, same cycle"),
    "during_steps": Entry("steps", "steps run while the write was in flight"),
    "slowdown_share": Entry(SHARE, "sigma: 1 - 1/x for steps x times longer during the write"),
    "period_s": Entry(S, "last rank in to the next save's last rank in; full design only"),
    "arrive_s": Entry(S, "longest wait at the barrier before the save: imbalance, no cost of the save"),
    "peers_s": Entry(S, "longest wait for slower ranks after the own save"),
    "write_s": Entry(S, "first writer's begin to the last writer's durable"),
    "written_bytes": Entry(BYTES, "of all shards"),
    "write_bytes_per_s": Entry("bytes/s", "written_bytes / write_s, all ranks together"),
    "dirty_bytes": Entry(BYTES, "in the hosts' memory and not yet on storage when the save returned, added by it"),
    "phases": Entry("JSON, s", "slowest rank's seconds in each sub-phase of the save"),
    "interval_steps": Entry("steps", "between saves; full design only"),
    "write_imbalance": Entry("ratio", "slowest rank's own writing time over the ranks' median"),
    "delete_s": Entry(S, "longest time a rank spent deleting old checkpoints; empty: nothing was deleted"),
}

LEDGER = {
    "launch": Entry("index", "launch"),
    "slot": Entry("node/local rank", "the slot whose time this is"),
    "arm": Entry("name", "the way of saving; empty for what belongs to none (startup, shutdown)"),
    "category": Entry("name", "one of the ledger's categories; METHOD.md, The ledger"),
    "seconds": Entry("slot-seconds", "GPU-seconds on GPUs; a slot's rows add up to its wall time"),
}

ARMS = {
    "name": Entry("name", "the way of saving"),
    "strategy": Entry("name", "its strategy; differs from the name for a synced twin (+fsync)"),
    "cycles": Entry("count", "measured saves with a known K: the n of most figures"),
    "launches": Entry("count", "launches that they come from"),
    "cost_s": Entry(S, "K, the true cost of a save"),
    "blocking_s": Entry(S, "S, how long a save blocks training"),
    "hidden_s": Entry(S, "K - S; may be negative by noise"),
    "durable_s": Entry(S, "L, when a save is safe"),
    "first_save_s": Entry(S, "S of the first save of a launch; in no other figure"),
    "step_s": Entry(S, "t, a step with no write in flight"),
    "load_cold_s": Entry(S, "loading the newest checkpoint, out of the page cache"),
    "load_warm_s": Entry(S, "loading it again"),
    "share": Entry(SHARE, "K / P at the stated period: the headline"),
    "stall_share": Entry(SHARE, "S / P: its visible part"),
    "period_s": Entry(S, "P, the period at which both shares are stated"),
    "period_at_40_s": Entry(S, "2.5 K: below this period the share exceeds 40 %"),
    "written_bytes": Entry(BYTES, "of one checkpoint, all shards"),
    "write_bytes_per_s": Entry("bytes/s", "all ranks together"),
    "storage_ceiling_share": Entry(SHARE, "write speed over the storage probe with the same fsync setting"),
    "dirty_bytes": Entry(BYTES, "only in memory when a save returned"),
    "saturated": Entry("true/false", "a write outlasts the period, so saves wait for each other"),
    "content_verified": Entry("true/false", "files read back equal the state at the call; empty: not read to the end"),
    "goodput": Entry(SHARE, "useful over all slot-seconds of the arm's own launches; full design only"),
    "slowdown_share": Entry(SHARE, "sigma, of steps during a write"),
    "launch_medians_cost_s": Entry("list of s", "median K of each launch: how much launches differ"),
    "write_s": Entry(S, "first writer's begin to the last durable"),
    "delete_s": Entry(S, "deleting old checkpoints, slowest rank"),
    "flush_s": Entry(S, "an fsync of the newest checkpoint after the measured part: what was only in the page cache"),
    "staging_bytes_per_s": Entry("bytes/s", "copy to the host, of one rank"),
    "staging_ceiling_share": Entry(SHARE, "of the pinned device-to-host bandwidth"),
    "limited_by": Entry("name", "what bounds the writes: store, serialisation, staging or slowest rank"),
    "peak_host_bytes": Entry(BYTES, "host memory above the control, worst node; own launches only"),
    "peak_shm_bytes": Entry(BYTES, "/dev/shm above the control, worst node"),
    "peak_device_bytes": Entry(BYTES, "GPU memory above the control, worst node"),
}

CHECKS = {
    "name": Entry("name", "the check"),
    "level": Entry("name", "ok, note, warn or invalid; a note does not change the status"),
    "reason": Entry("words", "what was found"),
    "remedy": Entry("words", "what to do about it"),
}

VERDICTS = {
    "claim": Entry("name", "the published claim"),
    "published": Entry("words", "what was published"),
    "measured": Entry("words", "what was measured here; empty: it was not"),
    "outcome": Entry("name", "holds, does_not_hold, not_decided or not_measured"),
    "text": Entry("words", "the verdict as a sentence"),
}

SWEEP = {
    "arm": Entry("name", "the way of saving"),
    "interval_steps": Entry("steps", "between saves"),
    "compute_s": Entry(S, "C, what the control needs for so many steps"),
    "period_s": Entry(S, "P, as measured"),
    "share": Entry(SHARE, "measured directly, 1 - T_control / T"),
    "predicted_share": Entry(SHARE, "from K and L of the longest interval; empty: this is the longest"),
    "saturated": Entry("true/false", "at least half of the writes outlasted the period"),
    "agree": Entry("true/false", "the measured and the predicted interval overlap"),
}

RECOVERIES = {
    "launch": Entry("index", "launch"),
    "occasion": Entry("index", "0 for the run itself; append= adds occasions"),
    "block": Entry("index", "launches of one block share seed and twin"),
    "arm": Entry("name", "the way of saving"),
    "layer": Entry("name", "recovery layer that the launch ran under"),
    "episode": Entry("index", "in the launch, from 0; empty: a planned fault that did not strike"),
    "fault": Entry("name", "kind of the first fault"),
    "label": Entry("words", "that fault with its moment and what else makes it another fault"),
    "at": Entry("name", "moment: step, staging, write, commit, load or recovery"),
    "faults": Entry("list of ids", "planned faults that belong to the episode"),
    "node": Entry("index", "node of the victim"),
    "local_rank": Entry("index", "of the victim on its node"),
    "rank": Entry("index", "of that slot at that moment"),
    "outcome": Entry("name", "recovered, tolerated, not_recovered, not_fired or unavailable"),
    "reason": Entry("words", "of unavailable and not_fired, and of not_recovered as far as it is known"),
    "layer_used": Entry("name", "the layer that brought the job back, by evidence of its processes"),
    "fault_step": Entry("steps", "finished when the fault struck"),
    "resumed_step": Entry("steps", "step count in the loaded state"),
    "lost_steps": Entry("steps", "fault_step - resumed_step"),
    "detect_s": Entry(S, "fault to its detection"),
    "stop_s": Entry(S, "detection until the old processes (or their work) are gone"),
    "queue_s": Entry(S, "until the engine has started the job again on all nodes; null where it was not asked to"),
    "restart_s": Entry(S, "until the last rank is ready to load"),
    "load_s": Entry(S, "until the last rank has loaded"),
    "first_step_s": Entry(S, "until the first new step is done everywhere"),
    "catch_up_s": Entry(S, "until the step that was to be finished at the fault is finished"),
    "time_to_recover_s": Entry(S, "fault to the end of the first new step on the last rank"),
    "time_to_catch_up_s": Entry(S, "fault to where the job was"),
    "gpu_seconds_lost": Entry("slot-seconds", "GPU-seconds on GPUs; against the same steps without the fault"),
    "detected_by": Entry("name", "what told first: abort, launcher_log or exit"),
    "processes_kept": Entry(SHARE, "of the struck processes that are part of the new generation"),
    "outlived": Entry("count", "old processes still there when the new generation was ready"),
    "attempts": Entry("count", "how often the job was started anew until it stepped"),
    "world_size_before": Entry("ranks", "before the fault"),
    "world_size_after": Entry("ranks", "after the recovery"),
    "resume_exact": Entry("true/false", "state and losses equal a run without the fault; empty: not comparable"),
    "resume_consistent": Entry("true/false", "restored state and order of samples are the saved ones"),
    "device_bytes_after_stop": Entry(BYTES, "GPU memory still in use after the abort"),
    "instrument_s": Entry(S, "the instrument's own time between fault and first step, taken out"),
    "points_s": Entry("JSON, s", "every point since the fault, the instrument's time still in"),
    "further_faults": Entry("count", "planned to strike while the job recovers from the first one"),
}

LAYERS = {
    "layer": Entry("name", "recovery layer"),
    "launches": Entry("count", "its launches"),
    "overhead_share": Entry(SHARE, "price when nothing fails: step time with the layer against without"),
    "goodput": Entry(SHARE, "useful over all slot-seconds of its launches"),
    "false_alarms": Entry("count", "restarts without a fault"),
    "faults": Entry("JSON", "per fault: episodes, outcomes, layers used, times and parts over episodes"),
}

OBJECTIONS = {
    "objection": Entry("words", "what a reviewer will say"),
    "shown_by": Entry("words", "the figure, column or check that answers"),
    "here": Entry("words", "what it says in this result"),
    "level": Entry("name", "of the checks behind it; unknown: nothing was measured that answers"),
}

TABLES: dict[str, dict[str, Entry]] = {
    "arms": ARMS,
    "samples": SAMPLES,
    "ledger": LEDGER,
    "sweep": SWEEP,
    "recoveries": RECOVERIES,
    "layers": LAYERS,
    "checks": CHECKS,
    "verdicts": VERDICTS,
    "objections": OBJECTIONS,
}


def rows() -> Iterator[tuple[str, str, str, str]]:
    """(table, column, unit, meaning) of every column."""
    for table, columns in TABLES.items():
        for column, (unit, meaning) in columns.items():
            yield table, column, unit, meaning
