"""What taking down events costs: microseconds an event, and its share of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

import numpy as np
import pytest

from bench.record import Recorder, clock

EVENT_BOUND_US = 10.0
STEP_S = 0.1  # the step that the share is stated for
STEP_BOUND_PERCENT = 0.1

META = {"role": "worker", "launch": 3, "node": 1, "local_rank": 7, "rank": 15, "world_size": 16, "incarnation": 0}
STEP = {"step": 123456, "arm": "nvrx_async", "cycle": 5, "use": "control", "segment": 17}
BATCH = 500  # events timed together
PAIRS = 60
COLD = np.zeros(8 << 20)  # 64 MB, more than the caches hold: an event then finds them as a training step leaves them


@pytest.fixture
def recorder(tmp_path) -> Iterator[Recorder]:
    made = Recorder(tmp_path, **META, token="a5b3c1d7e9f00112")
    yield made
    made.close()


def seconds_of(action: Callable[[], object]) -> float:
    start = perf_counter()
    for _ in range(BATCH):
        action()
    return perf_counter() - start


def test_an_event_costs_less_than_ten_microseconds(recorder, bounds):
    def span() -> None:
        with recorder.span("step", **STEP) as record:
            record["loss"] = 2.34567

    def empty_span() -> None:
        with nullcontext({}) as record:
            record["loss"] = 2.34567

    def instant() -> None:
        recorder.instant("dirty", arm="nvrx_async", save=12, dirty_bytes=123456789)

    spans, instants = [], []
    for _ in range(PAIRS):
        spans.append((seconds_of(span) - seconds_of(empty_span)) / BATCH / 2 * 1e6)  # a begin and an end each
        instants.append((seconds_of(instant) - seconds_of(clock)) / BATCH * 1e6)
    bounds.hold("an event, of a span", spans, EVENT_BOUND_US, "us")
    bounds.hold("an event, single", instants, EVENT_BOUND_US, "us")


@pytest.mark.parametrize("in_flight", [False, True], ids=["alone", "while a write is in flight"])
def test_recording_takes_less_than_a_thousandth_of_a_step_of_100_ms(in_flight, recorder, bounds):
    torch = pytest.importorskip("torch")
    from bench.train.instrument import Instrument

    instrument = Instrument(recorder, torch.device("cpu"))
    shares = []
    for _ in range(PAIRS):
        recorded, bare = cost_of(instrument.span, in_flight), cost_of(no_span, in_flight)
        shares.append((recorded - bare) / STEP_S * 100)
    what = "a step of 100 ms while a write is in flight" if in_flight else "a step of 100 ms"
    bounds.hold(f"recording {what}", shares, STEP_BOUND_PERCENT, "%")


def no_span(name: str, **attributes: object) -> AbstractContextManager[dict]:
    return nullcontext({})


@contextmanager
def around_a_step(span: Callable[..., AbstractContextManager[dict]], in_flight: bool) -> Iterator[None]:
    """The spans that the trainer opens around a step: its look at the writer, if there is one, and the step."""
    if in_flight:
        with span("poll", arm=STEP["arm"]):
            pass
    with span("step", **STEP) as record:
        yield
        record["loss"] = 2.34567


def cost_of(span: Callable[..., AbstractContextManager[dict]], in_flight: bool) -> float:
    """Seconds spent before and after the work that the spans surround, the work itself left out."""
    start = perf_counter()
    with around_a_step(span, in_flight):
        begin = perf_counter()
        COLD.__iadd__(1.0)
        end = perf_counter()
    return (begin - start) + (perf_counter() - end)
