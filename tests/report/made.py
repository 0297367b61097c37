"""Results to report: made ones whose every duration is known, and the committed references."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.schema import SCHEMA_VERSION
from tests.measure.results import write_result
from tests.measure.stories import ARM, Delays, Setting, in_new_processes, in_place, twin
from tests.measure.streams import run_json

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = ROOT / "results" / "reference"
MODEL = {"target": None, "dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 128, "vocab_size": 256}
TRAIN = {"compute": "real", "step_s": None, "batch_size": 2, "seq_len": 64, "compute_dtype": "auto"}
LAYERS = ("in_process", "in_job")
OCCASION = {"date": "2026-11-29T12:00:00+00:00", "launches": [{"index": index} for index in (1, 2, 3)]}


def write_run(folder: Path, run: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION} | run))
    return folder


def checkpoint_result(folder: Path, *arguments: Any, **options: Any) -> Path:
    """Three launches of three arms, in turns."""
    folder.mkdir(parents=True)
    parts: dict[str, Any] = {"model": MODEL, "train": TRAIN, "device": "cpu", "price_per_gpu_hour": 2.5}
    return write_run(folder, write_result(folder, *arguments, **(parts | options)) | {"occasions": [OCCASION]})


def recovery_result(folder: Path) -> Path:
    """Two layers, three blocks of one fault each; every block of the second has a twin without faults."""
    in_process, in_job = Delays(detect=0.2, stop=0.1, restart=0.4), Delays(detect=0.4, stop=0.3, restart=1.1)
    for block in range(3):
        first, second = (
            Setting(layer=layer, index=10 * block + n, block=block) for n, layer in enumerate(LAYERS, start=1)
        )
        stories = [
            in_place(first, 6, 4, in_process),
            in_new_processes(second, 6, 4, in_job, kind="exception"),
            twin(replace(second, index=10 * block + 3)),
        ]
        for story in stories:
            story.write(folder / "launches")
    config = {
        "checkpoint": {"arms": [ARM], "interval": 4},
        "recovery": {"layers": list(LAYERS)},
        "design": {"name": "recovery", "warmup_saves": 2},
    }
    return write_run(folder, run_json(Setting().scenario, **config))


def references() -> dict[str, Path]:
    """The committed results by scenario; of several of one scenario the newest."""
    return {path.parent.parent.name: path.parent for path in sorted(REFERENCES.glob("*/*/*/run.json"))}
