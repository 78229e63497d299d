"""Columns of few values: whether these are classes, and which."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from jaxtyping import Float, Int

from marco.model.description import Row
from marco.model.parts import Part
from marco.types import Categorical

MOST_VALUES = 32
"""A column with more values is a number."""
SHARE_OF_NEW = 0.05
"""Of a column with classes, at most this share of rows have a value that half of the episodes never shows.

A landmark that stands still within an episode has as many values as there are episodes, each often: that a
value returns within its episode says nothing.
"""
LIKENESS = 0.5
"""Columns of whole numbers share their classes if so much of their values together are values of both."""
MOST_FEATURES, MOST_DIMENSIONS = 32, 256
"""Features with classes, and these times the most classes of any: beyond, larger ones stay numbers.

There is a network for each, which sees the classes before its own; an imagined step asks them in turn.
"""


def few_values(column: Float[np.ndarray, " rows"], episode: Int[np.ndarray, " rows"]) -> tuple[float, ...]:
    """The values of a column whose values are few, and not only so far; else none."""
    if len(np.unique(column[:: 1 + len(column) // 1_000])) > MOST_VALUES:  # the most are, and soon found out
        return ()
    found, index = np.unique(column, return_inverse=True)
    if len(found) > MOST_VALUES:
        return ()
    odd = episode % 2 == 1
    both = np.isin(np.arange(len(found)), index[odd]) & np.isin(np.arange(len(found)), index[~odd])
    return tuple(found.tolist()) if (~both[index]).mean() <= SHARE_OF_NEW else ()


def tables_of(values: dict[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
    """The classes of columns: whole numbers without gaps, and the same for columns that are alike."""
    tables: dict[int, tuple[float, ...]] = {}
    shared: list[tuple[set[float], list[int]]] = []
    for column, found in values.items():
        own = set(_without_gaps(found))
        whole = all(value == int(value) for value in found) and len(found) > 2
        for known, columns in shared if whole else []:
            if len(own & known) >= LIKENESS * len(own | known) and len(own | known) <= MOST_VALUES:
                known |= own
                columns.append(column)
                break
        else:
            shared.append((own, [column]))
    for known, columns in shared:
        tables |= dict.fromkeys(columns, tuple(sorted(known, key=lambda value: (value != 0.0, value))))
    return tables


def _without_gaps(values: tuple[float, ...]) -> tuple[float, ...]:
    """Whole numbers with those between them, unless these are most."""
    low, high = values[0], values[-1]
    if any(value != int(value) for value in values) or high - low + 1 > min(MOST_VALUES, 2 * len(values)):
        return values
    return tuple(float(value) for value in range(int(low), int(high) + 1))


def with_classes(name: str, column: int, values: tuple[float, ...]) -> Part:
    """The part of a column with a class for each value."""
    labels = () if values == tuple(range(len(values))) else tuple(f"{value:g}" for value in values)
    labels = labels if len(set(labels)) == len(values) else ()
    return Part(name, (column,), tuple((value,) for value in values), labels)


def within_budget(rows: Sequence[Row], stated: Sequence[Row]) -> list[Row]:
    """The rows, with what would have too many classes for one model left as numbers, by size."""
    given = {part for row in stated for part in row.parts}
    every = [part for row in rows for part in row.parts]
    count = sum(_classes_of(part) > 0 for part in every if part in given)
    sizes = sorted(_classes_of(part) for part in every if part not in given and _classes_of(part))
    most = 0
    for size, alike in groupby(sizes):
        count += len(list(alike))
        if count > MOST_FEATURES or count * size > MOST_DIMENSIONS:
            break
        most = size

    def fitting(part: Part) -> Part:
        return part if part in given or _classes_of(part) <= most else Part(part.feature, part.columns)

    return [replace(row, parts=tuple(map(fitting, row.parts))) for row in rows]


def _classes_of(part: Part) -> int:
    """The most classes of the features of a part; 0 if it has none."""
    return max((feature.size for feature in part.features if isinstance(feature, Categorical)), default=0)
