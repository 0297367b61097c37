"""Results and plans as a test needs them: written through the schema's own classes, no figure of any machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.plan.config import Cluster, Failures, Job, Model, Plan, Simulation
from bench.plan.results import Result, read
from bench.schema import Arm, Figure, Sample, Summary

CLASSES = {
    "software": {"in_place": "yes", "layer": "in_process"},
    "network": {"in_place": "unclear", "layer": "in_job"},
    "hardware": {"in_place": "no", "layer": "in_job"},
}
CAUSES = [
    {"cause": "bug", "count": 15, "class": "software"},
    {"cause": "switch", "count": 10, "class": "network"},
    {"cause": "GPU", "count": 75, "class": "hardware"},
]
SYNC = {"blocking_s": 2.0, "cost_s": 2.1, "durable_s": 2.0, "slowdown_share": 0.0}
ASYNC = {"blocking_s": 0.1, "cost_s": 0.3, "durable_s": 2.5, "slowdown_share": 0.05}
NODE_BYTES = 100_000_000_000


def failures(**changes: Any) -> Failures:
    stated = {
        "per_1000_node_days": 5.0,
        "source": "a log",
        "causes": CAUSES,
        "classes": CLASSES,
        "causes_source": "a log",
    }
    return Failures(**(stated | changes))


def plan(**changes: Any) -> Plan:
    """64 nodes of 8 GPUs; the model's checkpoint has as many bytes as `result` writes on 64 nodes."""
    stated: dict[str, Any] = {
        "failures": failures(),
        "cluster": Cluster(price_per_gpu_hour=4.0),
        "job": Job(days=30),
        "model": Model(params=64 * NODE_BYTES / 10, bytes_per_param=10),
        "simulation": Simulation(replicates=50),
        "period_s": 1800.0,
    }
    return Plan(**(stated | changes))


def summary(nodes: int, device: str, arms: dict[str, dict[str, float]], **changes: Any) -> Summary:
    stated: dict[str, Any] = {
        "scenario": "ckpt_8node",
        "machine": "cluster",
        "device": device,
        "rehearsal": False,
        "design": "quick",
        "world_size": nodes * 8,
        "num_nodes": nodes,
        "versions": {},
        "status": "valid",
        "interrupted": False,
        "checks": [],
        "budget": {},
        "arms": [_arm(name, figures, nodes) for name, figures in arms.items()],
        "ledger": [],
        "verdicts": [],
    }
    return Summary(**(stated | changes))


def _arm(name: str, figures: dict[str, float], nodes: int) -> Arm:
    made = {key: Figure(value, 0.9 * value, 1.1 * value, 12, "ci95") for key, value in figures.items()}
    return Arm(name=name, strategy=name, cycles=12, launches=3, written_bytes=nodes * NODE_BYTES, **made)


def result(
    folder: Path,
    nodes: int = 8,
    device: str = "cuda",
    arms: dict[str, dict[str, float]] | None = None,
    samples: Sequence[Sample] | None = None,
    **changes: Any,
) -> Result:
    """A result folder with summary.json, and samples.parquet where samples are given; read back."""
    folder.mkdir(parents=True, exist_ok=True)
    content = summary(nodes, device, arms or {"sync_local": SYNC, "nvrx_async": ASYNC}, **changes)
    (folder / "summary.json").write_text(json.dumps(content.to_json()))
    if samples is not None:
        import pandas as pd

        rows = [asdict(each) | {"phases": "{}"} for each in samples]
        pd.DataFrame(rows).to_parquet(folder / "samples.parquet", index=False)
    return read(folder)


def sample(arm: str, measured: bool = True, **figures: float) -> Sample:
    empty = dict.fromkeys(
        ["blocking_s", "durable_s", "cost_s", "hidden_s", "control_step_s", "slowdown_share", "period_s", "arrive_s"]
    )
    empty |= dict.fromkeys(["peers_s", "write_s", "written_bytes", "write_bytes_per_s", "dirty_bytes"])
    place: dict[str, Any] = {
        "launch": 1,
        "occasion": 0,
        "cycle": 2,
        "arm": arm,
        "save": 2,
        "step": 20,
        "during_steps": 4,
    }
    return Sample(measured=measured, **place, **(empty | figures))


def recovery(layer_used: str, time_to_recover_s: float | None, load_s: float | None = None, outcome: str = "recovered"):
    return {
        "layer_used": layer_used,
        "time_to_recover_s": time_to_recover_s,
        "load_s": load_s,
        "outcome": outcome,
    }
