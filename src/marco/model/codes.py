"""One-hot codes among the inputs: their weights are looked up, where a product would multiply by zeros."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

LONG = 5
"""Columns from which on a code is looked up: a CPU finds one row in the time of some four multiplied."""

MOST = 0.75
"""The share of a row that long codes must have: where much of it is multiplied anyway, all of it is."""

TOGETHER = 8
"""Rows that are added up in one pass: fewer passes, but larger programs, which a CPU is slower to run."""


class Block(NamedTuple):
    """Neighbouring inputs: one code, or numbers."""

    width: int
    numbers: bool = False


@dataclass(frozen=True)
class Codes:
    """Where the long one-hot codes of a row are: of each at most one column is 1, and the others are 0."""

    places: tuple[tuple[int, int], ...] = ()
    """The first column of each code, and the one after its last."""

    @classmethod
    def among(cls, blocks: Iterable[Block]) -> "Codes":
        """Those of a row of these blocks; none, if they are not most of it."""
        found, width = [], 0
        for block in blocks:
            if not block.numbers and block.width >= LONG:
                found.append((width, width + block.width))
            width += block.width
        coded = sum(end - first for first, end in found)
        return cls(tuple(found)) if coded >= MOST * width else NO_CODES

    def followed_by(self, width: int, count: int, size: int) -> "Codes":
        """Those of a row of this width that goes on with so many codes of one size; none, if it has none."""
        if not (self.places and size >= LONG):
            return self
        starts = range(width, width + count * size, size)
        return Codes(self.places + tuple((first, first + size) for first in starts))

    def others(self, x: Float[Array, "in *out"]) -> Float[Array, "others *out"]:
        """What of an array stands in columns that belong to none."""
        edges = [0, *(edge for place in self.places for edge in place), len(x)]
        runs = zip(edges[::2], edges[1::2], strict=True)
        return jnp.concatenate([x[:0], *(x[first:end] for first, end in runs if first < end)])

    def on(self, x: Float[Array, " in"]) -> Int[Array, " codes"]:
        """The column that is on in each code, -1 if there is none, by one product."""
        number = np.zeros((x.shape[-1], len(self.places)), np.float32)
        for code, (first, end) in enumerate(self.places):
            number[first:end, code] = np.arange(first, end) + 1
        return jnp.round(jnp.matmul(x, number, precision="highest")).astype(jnp.int32) - 1


NO_CODES = Codes()


def sum_rows(
    weight: Float[Array, "networks in out"], network: Int[Array, ""], on: Int[Array, " codes"]
) -> Float[Array, " out"]:
    """One-hot codes times the matrix of a network: the sum of the rows that are on."""

    def add(total: Array, row: Array) -> tuple[Array, None]:
        return total + jnp.where(row < 0, 0.0, weight[network, jnp.maximum(row, 0)]), None

    return jax.lax.scan(add, jnp.zeros(weight.shape[-1]), on, unroll=TOGETHER)[0]
