"""An input of a plan with what it rests on. No figure of a plan goes without its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["measured", "extrapolated", "assumed"]
STATED = "stated by you"
CONFIGURED = "as configured: the default, unless you stated it"


@dataclass(frozen=True)
class Input:
    """One input. `low` and `high`: its interval where measured, bounds where extrapolated, else what is plausible."""

    name: str
    value: float
    unit: str
    kind: Kind
    source: str
    low: float | None = None
    high: float | None = None
    derived: bool = False  # follows from other inputs, so no sensitivity varies it by itself
    group: str | None = None  # inputs of one group move together: one cause decides where in their ranges they lie

    @property
    def varies(self) -> bool:
        return not self.derived and self.low is not None and self.high is not None and self.low < self.high
