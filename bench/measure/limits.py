"""What bounds an arm's writes: one word by a rule on its figures, so that a user knows what to change."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.schema import Sample

IMBALANCE = 1.25  # a rank's writing time as a multiple of the ranks' median
CEILING_SHARE = 0.80  # of what a probe says that the store or the link can do
STAGING_SHARE = 0.50  # of L


def limited_by(
    samples: Sequence[Sample], storage_ceiling_share: float | None, staging_ceiling_share: float | None
) -> str | None:
    """One of schema.LIMITS for an arm's measured `samples`; None where nothing is written or too little is known.

    The first that applies, by medians over the saves:
    "store"          the job writes at 80 % of the storage probe or more (`storage_ceiling_share`); such a store serves
                     the ranks one after the other, so it comes before the next rule
    "slowest rank"   the slowest rank's own writing takes more than 1.25 times the ranks' median
    "staging"        the copy to the host takes more than half of L; or it takes longer than the writing does, at 80 %
                     of the pinned device-to-host bandwidth or more (`staging_ceiling_share`)
    "serialisation"  none of these: turning tensors into bytes, and handing them on, is what is left
    """
    if storage_ceiling_share is not None and storage_ceiling_share >= CEILING_SHARE:
        return "store"
    imbalance = _median([sample.write_imbalance for sample in samples])
    if imbalance is not None and imbalance > IMBALANCE:
        return "slowest rank"
    if _staging(samples, staging_ceiling_share):
        return "staging"
    known = storage_ceiling_share is not None and any(sample.durable_s is not None for sample in samples)
    return "serialisation" if known else None


def _staging(samples: Sequence[Sample], ceiling_share: float | None) -> bool:
    staged = [sample for sample in samples if sample.phases.get("stage")]
    stage_s = _median([sample.phases["stage"] for sample in staged])
    durable_s = _median([sample.durable_s for sample in staged])
    write_s = _median([sample.write_s for sample in staged])
    if stage_s is None or durable_s is None:
        return False
    at_the_link = ceiling_share is not None and ceiling_share >= CEILING_SHARE
    return stage_s > STAGING_SHARE * durable_s or (at_the_link and write_s is not None and stage_s > write_s)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
