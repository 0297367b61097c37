"""GPUs: are they there, alike, free, large enough, and does the driver do what health checks ask of it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bench import environment
from bench.doctor.base import IN_JOB, IN_PROCESS, Case, Check, judged
from bench.measure.mfu import peak_flops
from bench.predict import H100_BF16_FLOPS
from bench.report import words
from bench.telemetry import devices

HEALTH_CHECK_DRIVER = 570  # first whose NVML tells which recovery a GPU needs; older: NVRx switches its check off
BUSY_BYTES = 1 << 30  # in use before anything of ours runs: more than what drivers and display take
GRADIENT_BYTES = {"float32": 4, "bfloat16": 2}


def examine(case: Case) -> Iterator[Check]:
    config, count = case.config, len(case.gpus)
    if config.device != "cuda":
        idle = f"; {count} here stay unused (device=cuda uses them)" if count else ""
        yield Check("GPUs", "skip", f"the run computes on CPUs (device={config.device}){idle}")
        return
    yield enough(case)
    if count:
        yield alike(case)
        yield fits(case)
        yield from states(case.environ)
    yield driver(case)


def enough(case: Case) -> Check:
    needed, count, spare = case.ranks_here, len(case.gpus), case.config.recovery.reserve
    names = ", ".join(f"{n} x {name}" for name, n in _names(case).items()) or "none"
    variable = case.environ.get(devices.VARIABLE)
    hidden = "" if variable is None else f" ({devices.VARIABLE}={variable} shows no others)"
    remedy = f"run on a node with {needed} GPUs, give ranks_per_node={count - spare}, or rehearse with cluster=emulated"
    if not count:
        remedy = "run on a node with GPUs (in a container: with --gpus all), or rehearse with cluster=emulated"
    return judged("GPUs", count >= needed, f"{needed} needed on this node, found: {names}{hidden}", remedy)


def _names(case: Case) -> Counter[str]:
    return Counter(str(gpu["name"]) for gpu in case.gpus)


def alike(case: Case) -> Check:
    """One model on all slots, and one whose speed is known: predictions and MFU rest on it."""
    names = _names(case)
    if len(names) > 1:
        remedy = "choose those of one model by CUDA_VISIBLE_DEVICES: all ranks wait for the slowest"
        return Check("GPU model", "warn", f"different ones: {', '.join(names)}", remedy)
    name = next(iter(names))
    peak = peak_flops(name)
    if peak is None:
        remedy = "the prediction assumes an H100, and MFU stays empty; the measured shares need neither"
        return Check("GPU model", "ok", f"{name}, whose peak is not in the suite's table; {remedy}")
    against = "" if peak == H100_BF16_FLOPS else f" (predictions assume {H100_BF16_FLOPS / 1e12:.0f})"
    return Check("GPU model", "ok", f"{name}: {peak / 1e12:.0f} TFLOP/s dense in bf16{against}")


def fits(case: Case) -> Check:
    """The sharded state and its gradients: a lower bound, since activations depend on the model's code."""
    config = case.config
    size, least = config.predicted_checkpoint_bytes, min((gpu["memory_bytes"] or 0) for gpu in case.gpus)
    if size is None or config.model.parameters is None or not least:
        return Check("GPU memory", "skip", "the model's size, or the GPUs', is not known before it is built")
    per_param = config.train.bytes_per_param + GRADIENT_BYTES[config.train.param_dtype]
    needed = config.model.parameters * per_param / config.world_size
    found = f"{words.size(needed)} a rank for weights, moments and gradients (activations come on top), "
    remedy = "more ranks, train.param_dtype=bfloat16 or a smaller model"
    return judged("GPU memory", needed < least, f"{found}{words.size(least)} there", remedy)


def states(environ: Mapping[str, str]) -> Iterator[Check]:
    """Who uses the GPUs of the run now, and whether they are slices."""
    with environment.nvml() as library:
        if library is not None:
            yield from states_of(library, environ.get(devices.VARIABLE))


def states_of(library: Any, variable: str | None) -> Iterator[Check]:
    there = devices.shown(library, variable)
    used = [(device, devices.used_bytes(library, device) or 0) for device in there]
    busy = [f"GPU {device.number}: {words.size(bytes_)}" for device, bytes_ in used if bytes_ > BUSY_BYTES]
    remedy = "wait for the other job, or choose free GPUs by CUDA_VISIBLE_DEVICES: shared ones measure each other"
    yield judged("GPUs in use", not busy, f"in use before the run: {', '.join(busy) or 'nothing'}", remedy, "warn")
    for device in there:
        if device.slice:
            remedy = "peak figures are those of whole GPUs: MFU does not hold for slices"
            yield Check("MIG", "warn", f"a slice of GPU {device.number}: CUDA shows a process no other GPU", remedy)


def driver(case: Case) -> Check:
    version = case.versions.get("driver")
    if version is None:
        remedy = "install the NVIDIA driver; in a container, start it with the NVIDIA runtime (--gpus all)"
        return Check("driver", "fail", "no NVIDIA driver answers through NVML", remedy)
    old = int(version.split(".")[0]) < HEALTH_CHECK_DRIVER
    if not old:
        return Check("driver", "ok", f"{version}; GPU health checks work from {HEALTH_CHECK_DRIVER} on")
    concerned = sorted(case.layers & (IN_PROCESS | IN_JOB))
    found = f"{version} is older than {HEALTH_CHECK_DRIVER}: NVRx's GPU health checks are off"
    remedy = f"a driver of {HEALTH_CHECK_DRIVER} or newer, or results of {', '.join(concerned)} without them"
    return judged("driver", not concerned, found, remedy, "warn")
