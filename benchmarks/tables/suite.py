"""The suite's table: what everybody reaches in every world, between random play (0) and the ceiling (1)."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from marco.reproduction.cells import LEAST_SEEDS
from marco.reproduction.statistics import Interval, iqm_over, mean_and_iqm
from record import FREE, MARCO, MODEL_FREE, SOURCES, SUITE, SUITE_MODELS, Results, Row
from tables.common import grouped, markdown

Key = tuple[str, str]
"""A world and a cell."""
SHARES = ("B", "10 B", "100 B")
COLUMNS = ("model-free B", "model-free 10 B", "model-free 100 B", "marco B/3", "marco B")
EARLIER = "†"
"""Marks what was measured with earlier settings than today's."""
MODELS = """### Models beside gradient-boosted trees

`python benchmarks/suite.py --models`. All learn from the same episodes of random play, and are judged by
fresh ones: nats summed over the classes of a component, and the share of the variance of its values that is
left. `boosting` is scikit-learn's HistGradientBoosting with the inputs of the model's networks; `boosting,
related` is shown every feature as a number, the differences between features of one kind, and is asked for
changes. "Right" is the share of rows in which MARCO has all classes right. "Times" is MARCO's loss over that
of `boosting`, which has the same inputs; a loss of the trees below {least} counts as {least}. Where rows are
all but certain, the ratio of two losses near 0 says how long each was trained, and nothing of what was
learned: at {least} nats the truth has a probability of 99%, and values are off by a tenth of their standard
deviation. Worlds and samples that are not in the table have not been measured yet.

{table}

"""
"""A section of the page of benchmarks."""
LEAST = 0.01
"""A loss of the trees that is smaller counts as this, in nats or as a share of the variance."""
LONG = (
    *("world", "cell", "learner", "samples", "seeds", "return", "low", "high"),
    *("score", "score_low", "score_high", "imagined_minus_real", "earlier_settings"),
)


class Found(NamedTuple):
    """What was measured of one column in one world; of model-free learners the best."""

    learner: str
    samples: int
    returns: np.ndarray
    imagined: np.ndarray | None
    earlier: bool


class Standing(NamedTuple):
    """A world: what counts as 0 and as 1, and what was found."""

    name: str
    budget: int
    random: float | None
    ceiling: float | None
    found: dict[str, Found]

    def scores(self, column: str) -> np.ndarray | None:
        """The returns between random play and the ceiling, where both are known."""
        if column not in self.found or self.random is None or self.ceiling is None:
            return None
        return (self.found[column].returns - self.random) / (self.ceiling - self.random)


def standings(results: Results, worlds: Iterable[Any], stale: Collection[Key] = ()) -> list[Standing]:
    """Of every world, in their order."""
    rows = grouped(results.read(SUITE), "world", "cell")
    return [_standing(results, world, rows, stale) for world in worlds]


def _standing(
    results: Results, world: Any, rows: dict[tuple[Any, ...], list[Row]], stale: Collection[Key]
) -> Standing:
    own = {cell: kept for (name, cell), kept in rows.items() if name == world.name}
    found: dict[str, Found] = {}
    for column in COLUMNS:
        kind, share = column.split(" ", 1)
        if kind == "marco":
            candidates = [_of(own[column], (world.name, column) in stale)] if column in own else []
            samples = world.budget // 3 if share == "B/3" else world.budget
            candidates = candidates or _elsewhere(results, MARCO, world.name, samples)[:1]
        else:
            samples = world.budget * {"B": 1, "10 B": 10, "100 B": 100}[share]
            candidates = [
                _of(kept, (world.name, cell) in stale)
                for cell, kept in own.items()
                if cell.endswith(f" {share}") and cell.split(" ")[0] in ("iql", "vdn", "qmix", "mappo")
            ]
            candidates += _elsewhere(results, MODEL_FREE, world.name, samples)
        if candidates:
            found[column] = max(candidates, key=lambda one: one.returns.mean())
    ceilings = own.get("ceiling") or [row for row in results.read(FREE) if row["world"] == world.name]
    return Standing(
        world.name,
        world.budget,
        own["random"][0]["return"] if "random" in own else None,
        max((row["return"] for row in ceilings), default=None),
        found,
    )


def _of(rows: list[Row], earlier: bool) -> Found:
    rows = sorted(rows, key=lambda row: row["seed"])
    imagined = [row["imagined"] for row in rows]
    known = np.array(imagined) if None not in imagined else None
    returns = np.array([row["return"] for row in rows], float)
    return Found(rows[0]["learner"], int(rows[0]["samples"]), returns, known, earlier)


def _elsewhere(results: Results, table: Any, world: str, samples: int) -> list[Found]:
    """What other studies measured with this world and budget and the settings of their time; newest first."""
    column = "samples" if table is MARCO else "budget"
    rows = [row for row in results.read(table) if row["world"] == world and row[column] == samples]
    if table is MARCO:
        rows = [row for row in rows if row["preset"] == "default" and not row["changes"]]
    dates = {row["source"]: row["date"] for row in results.read(SOURCES)}
    studies = grouped(rows, "study").values()
    latest = sorted(studies, key=lambda study: max(dates[row["source"]] for row in study), reverse=True)
    whole = [[{"imagined": None, "learner": "marco", **row} for row in study] for study in latest]
    return [_of(study, earlier=True) for study in whole]


def suite_table(results: Results, worlds: Sequence[Any], stale: Collection[Key] = ()) -> str:
    """Markdown: a line for each world, and the interquartile mean over worlds."""
    every = standings(results, worlds, stale)
    header = ["world", "B", "random", "ceiling", "model-free at B", "10 B", "100 B"]
    header += ["MARCO at B/3", "MARCO at B", "imagined - real", "model-free needs"]
    lines = [
        [
            f"`{one.name}`",
            f"{one.budget:,}",
            *(_number(value) for value in (one.random, one.ceiling)),
            *(_cell(one, column) for column in COLUMNS),
            _gap(one),
            _needs(one),
        ]
        for one in every
    ]
    last = ["interquartile mean of the scores", "", "0", "1", *(_overall(every, c) for c in COLUMNS), "", ""]
    notes = (
        "Mean return; in brackets the score (0 is random play, 1 the ceiling), its 95% interval, and the "
        f"number of seeds; fewer than {LEAST_SEEDS} give no interval, and do not count in the last line, "
        "whose columns are of different worlds as long as cells are empty. "
        f"{EARLIER}: measured with earlier settings."
    )
    return f"{markdown(header, [*lines, last])}\n\n{notes}"


def lines_of(results: Results, worlds: Sequence[Any], stale: Collection[Key] = ()) -> list[list[Any]]:
    """The same as plain lines, one for each world and column."""
    lines: list[list[Any]] = [list(LONG)]
    for one in standings(results, worlds, stale):
        for name, value in (("random", one.random), ("ceiling", one.ceiling)):
            lines.append([one.name, name, "", "", "", value, *[""] * 7])
        for column, found in one.found.items():
            scores = one.scores(column)
            score = ("", "", "") if scores is None else _mean(scores)
            gap = "" if found.imagined is None else float((found.imagined - found.returns).mean())
            lines.append(
                [one.name, column, found.learner, found.samples, len(found.returns)]
                + [*_mean(found.returns), *score, gap, int(found.earlier)]
            )
    return lines


def _mean(values: np.ndarray) -> Interval:
    """Without an interval where the seeds are too few for one."""
    if len(values) < LEAST_SEEDS:
        return Interval(float(values.mean()), np.nan, np.nan)
    return _interval(tuple(values.tolist()))


@cache
def _interval(values: tuple[float, ...]) -> Interval:
    return mean_and_iqm(np.array(values))[0]


@cache
def _iqm(worlds: tuple[tuple[float, ...], ...]) -> Interval:
    return iqm_over([np.array(one) for one in worlds])


def _cell(one: Standing, column: str) -> str:
    if column not in one.found:
        return ""
    found, scores = one.found[column], one.scores(column)
    who = f"{found.learner.upper()} " if column.startswith("model-free") else ""
    mark = EARLIER if found.earlier else ""
    if scores is None:
        return f"{who}{_number(float(found.returns.mean()))} ({len(found.returns)}){mark}"
    mean = _mean(scores)
    spread = "" if np.isnan(mean.low) else f", {mean.low:.2f} to {mean.high:.2f}"
    return (
        f"{who}{_number(float(found.returns.mean()))} "
        f"({mean.estimate:.2f}{spread}; {len(found.returns)}){mark}"
    )


def _gap(one: Standing) -> str:
    """Of MARCO at B, and as a share of the range."""
    found = one.found.get("marco B")
    if found is None or found.imagined is None:
        return ""
    gap = float((found.imagined - found.returns).mean())
    if one.random is None or one.ceiling is None:
        return f"{gap:+.3g}"
    return f"{gap:+.3g} ({gap / (one.ceiling - one.random):+.0%})"


def _needs(one: Standing) -> str:
    """The least of the budgets at which the best model-free learner is where MARCO is at B."""
    if "marco B" not in one.found:
        return ""
    wanted = float(one.found["marco B"].returns.mean())
    tried = [share for share in SHARES if f"model-free {share}" in one.found]
    for share in tried:
        if one.found[f"model-free {share}"].returns.mean() >= wanted:
            return f"at most {share}"
    return f"more than {tried[-1]}" if tried else ""


def _overall(every: Sequence[Standing], column: str) -> str:
    scores = [found for one in every if (found := one.scores(column)) is not None]
    enough = [found for found in scores if len(found) >= LEAST_SEEDS]
    if len(enough) < 2:
        return ""
    scores, found = enough, _iqm(tuple(tuple(one.tolist()) for one in enough))
    return f"{found.estimate:.2f} ({found.low:.2f} to {found.high:.2f}; {len(scores)} worlds)"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"


def model_section(results: Results) -> str:
    """The comparison of models with trees, for the page of benchmarks; nothing, if it was never run."""
    if not results.read(SUITE_MODELS):
        return ""
    return MODELS.format(table=model_table(results), least=LEAST)


def model_table(results: Results) -> str:
    """The model beside trees on the same rows: losses in fresh episodes of random play."""
    sides = ("MARCO", "boosting", "boosting, related")
    lines = []
    for (world, component, samples), rows in grouped(
        results.read(SUITE_MODELS), "world", "component", "samples"
    ).items():
        of = {side: [row for row in rows if row["side"] == side] for side in sides}
        for quantity in ("nats", "unexplained"):
            values = [_average(of[side], quantity) for side in sides]
            if all(value is None for value in values):
                continue
            right = _average(of["MARCO"], "right") if quantity == "nats" else None
            shown = [f"{value:.4g}" if value is not None else "" for value in values]
            shown.append(f"{times(*values[:2]):.2f}" if None not in values[:2] else "")
            shown.append(f"{right:.1%}" if right is not None else "")
            lines.append([f"`{world}`", component, f"{samples:,}", quantity, *shown])
    header = ["world", "component", "samples", "loss", *sides, "times", "MARCO right"]
    return markdown(header, sorted(lines, key=lambda line: (line[0], line[1])))


def times(own: float, trees: float) -> float:
    """A loss of MARCO's over that of trees; where that is next to nothing, over the least that counts."""
    return own / max(trees, LEAST)


def _average(rows: list[Row], column: str) -> float | None:
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.mean(values)) if values else None
