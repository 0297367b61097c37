"""Recoveries that nobody measured, for what is made of them."""

from __future__ import annotations

from typing import Any

from bench.schema import Recovery


def recovery(layer: str = "in_job", seconds: float | None = 2.4, label: str = "sigkill", **changes: Any) -> Recovery:
    """A recovery whose parts are fixed shares of `seconds`; None: it did not recover."""
    known = seconds is not None
    shares = {"detect_s": 0.2, "stop_s": 0.1, "restart_s": 0.4, "load_s": 0.25, "first_step_s": 0.05}
    parts = {name: None if seconds is None else share * seconds for name, share in shares.items()}
    content: dict[str, Any] = {
        "launch": 1,
        "occasion": 0,
        "block": 0,
        "arm": "sync_local",
        "layer": layer,
        "episode": 0,
        "fault": label.split(",", maxsplit=1)[0],
        "label": label,
        "at": "step",
        "faults": ["f0"],
        "node": 0,
        "local_rank": 1,
        "rank": 1,
        "outcome": "recovered" if known else "not_recovered",
        "layer_used": layer if known else None,
        "fault_step": 6,
        "resumed_step": 4 if known else None,
        "lost_steps": 2 if known else None,
        "catch_up_s": 0.2 if known else None,
        "time_to_recover_s": seconds,
        "time_to_catch_up_s": None if seconds is None else seconds + 0.2,
        "gpu_seconds_lost": None if seconds is None else 2 * seconds,
        "detected_by": "launcher_log",
        "processes_kept": 0.0 if known else None,
        "outlived": 0 if known else None,
        "attempts": 1,
        "world_size_before": 2,
        "world_size_after": 2 if known else None,
        "resume_exact": True if known else None,
        "resume_consistent": True if known else None,
    }
    return Recovery(**(content | parts | changes))
