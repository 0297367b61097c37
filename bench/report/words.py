"""Quantities in words: the same way everywhere a person reads them."""

from __future__ import annotations

from math import floor, log10

from bench.schema import Figure

MISSING = "-"


def digits(value: float, significant: int = 3) -> str:
    """`value` with so many significant digits, never in exponents: 0.0123, 1.23, 123, 12345."""
    return f"{value:.{_places(value, significant)}f}"


def _places(value: float, significant: int = 3) -> int:
    """Decimal places that show so many significant digits of `value`; at most 6."""
    if value == 0:
        return 0
    return min(max(significant - 1 - floor(log10(abs(value))), 0), 6)


def seconds(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{digits(value * 1000)} ms" if abs(value) < 1 else f"{digits(value)} s"


def with_interval(figure: Figure, form: object) -> str:
    """ "125 ms [74, 176]": all three in the median's unit, so that they can be compared at a glance."""
    if form is percent:
        places = 1 if max(abs(figure.median), abs(figure.high)) >= 0.0995 else 2
        low, high = (f"{bound * 100:.{places}f}" for bound in (figure.low, figure.high))
        return f"{figure.median * 100:.{places}f} % [{low}, {high}]"
    unit = 1.0 if abs(figure.median) >= 1 else 1000.0
    places = _places(figure.median * unit)
    low, high = (f"{bound * unit:.{places}f}" for bound in (figure.low, figure.high))
    return f"{figure.median * unit:.{places}f} {'s' if unit == 1.0 else 'ms'} [{low}, {high}]"


def duration(value: float | None) -> str:
    """Coarse, for plans and waiting: 45 s, 2 min 10 s, 3 h 20 min."""
    if value is None:
        return "unknown"
    total = round(value)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(value: float | None) -> str:
    """Decimal units, as storage is sold: 137 MB, 96.4 GB."""
    if value is None:
        return MISSING
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def percent(value: float | None) -> str:
    return MISSING if value is None else f"{value * 100:.{2 if abs(value) < 0.0995 else 1}f} %"


def span(figure: Figure | None, form: object = percent) -> str:
    """The interval alone, e.g. "9.1 - 11.2 %"."""
    assert callable(form)
    return MISSING if figure is None else f"{form(figure.low)} to {form(figure.high)}"


INTERVAL_NAMES = {"ci95": "95 % interval", "range": "range", "within_run": "within this run"}
