"""Summaries of rows, and how they are written."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from scipy.stats import t as student

from record import MODEL_FREE, SOURCES, Results, Row

SPREAD = "mpe2.simple_spread_v3:parallel_env"


class Summary(NamedTuple):
    """Returns over seeds: mean, half of the 95% interval (Student's t), lowest and highest."""

    runs: int
    mean: float
    half_width: float
    lowest: float
    highest: float


def summary(values: Sequence[float]) -> Summary:
    """Of one value per run; the interval of a single run is infinite."""
    count = len(values)
    width = float(student.ppf(0.975, count - 1)) * stdev(values) / count**0.5 if count > 1 else float("inf")
    return Summary(count, mean(values), width, min(values), max(values))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of these columns, in the order of the file."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[column] for column in columns)].append(row)
    return groups


def decimals(world: str, finest: int = 4) -> int:
    """Returns of `switch` and `bridge` lie between -1 and 1, those of the others between -60 and 0."""
    return finest if world in ("switch", "bridge") else 2


def short_world(world: str) -> str:
    """As written in tables."""
    return "`simple_spread`" if world == SPREAD else f"`{world}`"


def with_interval(found: Summary, digits: int) -> str:
    """Mean and 95% interval; the mean alone where all runs agree."""
    if found.runs == 1 or found.highest - found.lowest < 1e-6:
        return f"{found.mean:.{digits}f}".replace("-0.0000", "0.0000")
    return f"{found.mean:.{digits}f} ± {found.half_width:.{digits}f}"


def with_range(found: Summary, digits: int) -> str:
    """Mean, lowest and highest."""
    return f"{found.mean:.{digits}f} ({found.lowest:.{digits}f} to {found.highest:.{digits}f})"


def commits(results: Results, rows: Iterable[Row]) -> str:
    """The commits at which rows were measured."""
    of = {row["source"]: row["commit"] for row in results.read(SOURCES)}
    return ", ".join(f"`{commit}`" for commit in dict.fromkeys(of[row["source"]] for row in rows))


def device(results: Results, row: Row) -> str:
    """The accelerator, or the number of cores."""
    source = next(each for each in results.read(SOURCES) if each["source"] == row["source"])
    return (
        f"{source['cores']} cores" if source["device"] == "cpu" else source["device"].removeprefix("NVIDIA ")
    )


def curve(results: Results, study: str) -> list[tuple[float, Summary]]:
    """Mean samples and the returns over seeds at every evaluation."""
    rows = [row for row in results.read(MODEL_FREE) if row["study"] == study]
    return [
        (mean(row["samples"] for row in at), summary([row["return"] for row in at]))
        for at in grouped(rows, "budget").values()
    ]
