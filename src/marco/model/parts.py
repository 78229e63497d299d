"""The parts of a description: some columns of a row, and what they are together."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from marco.types import Categorical, Continuous, Feature, binary

Values = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Part:
    """Some columns of a row, and what they are together.

    Numbers, unless `values` lists what they show: each row of it is a class; a single one is a constant. A
    row of values that is all zeros is the first, and blank: silence, an empty place, a light that is off.
    """

    feature: str
    columns: tuple[int, ...]
    values: Values = ()
    labels: tuple[str, ...] = ()
    """The names of the classes."""
    absent: bool = False
    """Of numbers: they are all 0 where the thing is not there, which is a feature of its own."""
    repeats: tuple[int, ...] = ()
    """The columns that these are always equal to."""
    plus: tuple[int, ...] = ()
    """Of vectors: these are the sum of the places of the columns in `plus`, less those in `minus`."""
    minus: tuple[int, ...] = ()
    """A way between two places, one of which may be this part's own; if none is, they are derived."""
    vector: bool = False
    """Of numbers: whether the length means something by itself."""

    def __post_init__(self) -> None:
        what = f"feature {self.feature!r}"
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"{what} needs columns, each once, got {list(self.columns)}.")
        if any(len(row) != len(self.columns) for row in self.values):
            raise ValueError(f"{what} has {len(self.columns)} columns: give as many numbers for each class.")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"{what} has the same values for two classes: give each class its own.")
        if any(not np.isfinite(row).all() for row in self.values):
            raise ValueError(f"{what} has values that are no finite numbers.")
        if self.labels and len(self.labels) != len(self.values):
            raise ValueError(f"{what} has {len(self.values)} classes but {len(self.labels)} labels.")
        if self.repeats and len(self.repeats) != len(self.columns):
            raise ValueError(f"{what} repeats {len(self.repeats)} columns with {len(self.columns)}.")
        if (self.absent or self.repeats or self._sum) and self.values:
            raise ValueError(f"{what} has values, so it can neither be absent nor repeat other columns.")
        if len(self.plus) % len(self.columns) or len(self.minus) % len(self.columns):
            raise ValueError(f"{what} needs {len(self.columns)} columns of each place in plus and minus.")
        if self._sum and (self.absent or self.repeats):
            raise ValueError(f"{what} is a sum of places: it can neither be absent nor repeat others.")

    @property
    def features(self) -> tuple[Feature, ...]:
        """What the model learns of these columns."""
        if self.repeats or self.derived or len(self.values) == 1:
            return ()
        if self.values:
            return (Categorical(self.feature, len(self.values), self.blank, labels=self.labels),)
        there = (binary(f"{self.feature} is there"),) if self.absent else ()
        return (*there, Continuous(self.feature, len(self.columns), self.vector))

    @property
    def derived(self) -> bool:
        """Whether these columns are computed from the places of others."""
        return bool(self._sum) and not set(self.columns) & set(self._sum)

    def terms(self) -> list[tuple[float, tuple[int, ...]]]:
        """The places of which these columns are the sum, with their signs."""
        size = len(self.columns)
        return [
            (sign, side[at : at + size])
            for sign, side in ((1.0, self.plus), (-1.0, self.minus))
            for at in range(0, len(side), size)
        ] or [(1.0, self.columns)]

    @property
    def _sum(self) -> tuple[int, ...]:
        return self.plus + self.minus

    @property
    def blank(self) -> bool:
        """Whether the first class is all zeros."""
        return not any(self.values[0])

    def encode(self, raw: Any, xp: Any) -> list[Any]:
        """The described columns of raw ones, in parts; values that are in no class count as the nearest."""
        if not self.features:
            return []
        if not self.values:
            there = [(raw != 0.0).any(-1, keepdims=True).astype(np.float32)] if self.absent else []
            return [*there, raw]
        table = np.array(self.values, np.float32)
        if len(self.columns) == 1:
            index = xp.argmin(abs(raw - table[:, 0]), axis=-1)
        else:  # the squared distance, without what is the same for all classes
            index = xp.argmax(xp.matmul(raw, table.T) - 0.5 * np.square(table).sum(-1), axis=-1)
        hot = index[..., None] == np.arange(self.blank, len(table))
        return [hot.astype(np.float32)]
