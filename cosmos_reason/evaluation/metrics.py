"""Numbers from records: accuracy with intervals clustered by clip, against a stated chance.

Questions about one clip are not independent, so the interval treats the clip as the unit (cluster-robust variance of a
ratio estimator, Cochran 1977, section 6.3, with the G/(G−1) correction). Where all or none are right that variance is
zero, and Wilson's score interval with clips as its count stands in (Wilson 1927, p̂ = 0 or 1).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cosmos_reason.types import Sample


@dataclass(frozen=True)
class Scored:
    """One question's result as the metrics see it."""

    clip: str
    group: str  # family, kind or whatever is averaged over
    value: float
    chance: float


@dataclass(frozen=True)
class Accuracy:
    """A mean in 0..1 with its 95% interval. Example: ``Accuracy(0.81, 0.78, 0.84, 600, 0.43)``."""

    mean: float
    low: float
    high: float
    count: int
    chance: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}% [{100 * self.low:.1f}, {100 * self.high:.1f}] (chance {100 * self.chance:.1f}%)"


def chance_of(sample: Sample) -> float:
    """What guessing scores: 1/2 for binary, 1/K for choice with one right option, 0 where guesses are not finite."""
    if sample.kind == "binary":
        return 0.5
    if sample.kind == "choice":
        return 1.0 / len(sample.options)
    return 0.0


def accuracy(scored: Sequence[Scored]) -> Accuracy:
    """Mean over questions, interval clustered by clip; one clip alone gives the interval 0..1."""
    if not scored:
        return Accuracy(math.nan, math.nan, math.nan, 0, math.nan)
    n = len(scored)
    mean = sum(s.value for s in scored) / n
    residual: dict[str, float] = defaultdict(float)
    for s in scored:
        residual[s.clip] += s.value - mean
    chance = sum(s.chance for s in scored) / n
    groups = len(residual)
    if groups < 2:
        return Accuracy(mean, 0.0, 1.0, n, chance)
    variance = groups / (groups - 1) * sum(r * r for r in residual.values()) / n**2
    if mean in (0.0, 1.0):  # no spread was seen, which is no proof that there is none: Wilson's interval over clips
        edge = groups / (groups + 1.96**2)
        return Accuracy(mean, edge if mean else 0.0, 1.0 if mean else 1.0 - edge, n, chance)
    half = 1.96 * math.sqrt(variance)
    return Accuracy(mean, max(0.0, mean - half), min(1.0, mean + half), n, chance)


def by_group(scored: Iterable[Scored]) -> dict[str, Accuracy]:
    """Accuracy of each group found in the data, sorted by name."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for s in scored:
        groups[s.group].append(s)
    return {name: accuracy(groups[name]) for name in sorted(groups)}
