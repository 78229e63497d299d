"""The paper's figures, drawn from finished cells; nothing is run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from marco.reproduction.cells import DEFAULT_BUDGETS, RANGE, WORLDS, Cell, MarcoCell, TabularCell
from marco.reproduction.statistics import profile
from marco.reproduction.store import Measured, Row

Found = dict[str, tuple[Cell, Measured]]
COLOURS = plt.get_cmap("tab10").colors


def draw_results(found: Found, path: Path) -> None:
    """Three rows (against policy steps, real samples, and these on a log axis), a column per environment."""
    figure, axes = plt.subplots(3, len(WORLDS), figsize=(13, 10), squeeze=False)
    for column, world in enumerate(WORLDS):
        own = [
            (cell, measured) for cell, measured in found.values() if cell.world == world and _headline(cell)
        ]
        for row, (horizontal, log) in enumerate((("steps", False), ("samples", False), ("samples", True))):
            axis = axes[row, column]
            _curves(axis, own, horizontal)
            if log:
                axis.set_xscale("log")
            if row == 0:
                axis.set_title(world)
            axis.set_xlabel("policy steps" if horizontal == "steps" else "real samples")
        if own:
            axes[0, column].legend(fontsize=7)
        axes[0, 0].set_ylabel("return")
    _save(figure, path)


def draw_ablation(found: Found, names: Sequence[str], path: Path) -> None:
    """Final returns of MARCO and of its ablations, a bar with the mean and a dot per seed."""
    present = [name for name in names if name in found]
    figure, axis = plt.subplots(figsize=(1.6 * max(2, len(present)) + 1, 4))
    for place, name in enumerate(present):
        values = found[name][1].final()
        axis.bar(place, values.mean(), color=COLOURS[place % 10], alpha=0.5)
        axis.plot(np.full(len(values), place), values, "k.", alpha=0.6)
    axis.set_xticks(range(len(present)), [name.replace("-", "\n", 2) for name in present], fontsize=8)
    axis.set_ylabel("return of the final team")
    _save(figure, path)


def draw_visitation(found: Found, names: Sequence[str], path: Path) -> None:
    """log r-tilde of what the team meets, and the share of pairs in the data, after each refit."""
    present = [name for name in names if name in found]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for place, name in enumerate(present):
        rows = [row for row in found[name][1].rows if row.pairs is not None]
        steps = sorted({row.samples for row in rows})
        at = [[row for row in rows if row.samples == step] for step in steps]
        colour, title = COLOURS[place], found[name][0].title
        left.plot(steps, [np.mean([row.r50 for row in own]) for own in at], "o-", color=colour, label=title)
        low, high = ([np.mean([getattr(row, side) for row in own]) for own in at] for side in ("r05", "r95"))
        left.fill_between(steps, low, high, color=colour, alpha=0.2)
        right.plot(
            steps, [np.mean([row.pairs for row in own]) for own in at], "o-", color=colour, label=title
        )
    left.set_ylabel("log r-tilde of 5,000 pairs met (5% to 95%)")
    right.set_ylabel("share of reachable pairs in the data")
    for axis in (left, right):
        axis.set_xlabel("real samples")
        axis.legend(fontsize=8)
    _save(figure, path)


def draw_tabular(found: Found, path: Path) -> None:
    """The share of the optimum against samples, the mean over runs, for each problem."""
    cells = [(cell, measured) for cell, measured in found.values() if isinstance(cell, TabularCell)]
    worlds = list(dict.fromkeys(cell.world for cell, _ in cells))
    figure, axes = plt.subplots(1, len(worlds), figsize=(5.5 * len(worlds), 4), squeeze=False)
    for axis, world in zip(axes[0], worlds, strict=True):
        for place, (cell, measured) in enumerate(one for one in cells if one[0].world == world):
            curves = list(measured.curve().values())
            grid = np.unique([row.samples for rows in curves for row in rows])
            values = [_held(rows, grid) for rows in curves]
            axis.step(
                np.maximum(grid, 1),
                np.mean(values, axis=0),
                where="post",
                label=cell.title,
                color=COLOURS[place],
            )
        axis.set(title=world, xscale="log", xlabel="real samples", ylabel="share of the optimum")
        axis.legend(fontsize=8)
    _save(figure, path)


def _held(rows: list[Row], grid: Any) -> Any:
    """The value of the last row at or before each number of samples."""
    samples = np.array([row.samples for row in rows])
    return np.array([row.value for row in rows])[np.searchsorted(samples, grid, side="right") - 1]


def draw_profiles(found: Found, path: Path) -> None:
    """The share of runs above each normalised score, over the three environments (rliable)."""
    methods = {
        "MARCO, paper": [f"{world}-paper" for world in WORLDS],
        "MARCO, default": [f"{world}-default-{DEFAULT_BUDGETS[world][-1]}" for world in WORLDS],
        "model-free, paper": [f"{world}-free-paper" for world in WORLDS],
        "model-free, tuned": [f"{world}-free-tuned" for world in WORLDS],
    }
    scores = {}
    for title, names in methods.items():
        if all(name in found for name in names):
            columns = [
                normalised(world, found[name][1].final()) for world, name in zip(WORLDS, names, strict=True)
            ]
            runs = min(map(len, columns))
            scores[title] = np.stack([column[:runs] for column in columns], axis=1)
    if not scores:
        return
    levels = np.linspace(0.0, 1.05, 60)
    profiles, intervals = profile(scores, levels)
    figure, axis = plt.subplots(figsize=(6, 4))
    for colour, title in zip(COLOURS, scores, strict=False):
        axis.plot(levels, profiles[title], color=colour, label=title)
        axis.fill_between(levels, *intervals[title], color=colour, alpha=0.2)
    axis.set_xlabel("normalised return")
    axis.set_ylabel("share of runs above")
    axis.legend(fontsize=8)
    _save(figure, path)


def normalised(world: str, values: Any) -> Any:
    """Returns as scores from 0 to about 1."""
    low, high = RANGE[world]
    return (np.asarray(values) - low) / (high - low)


def _headline(cell: Cell) -> bool:
    """Whether a curve belongs into the paper's main figure."""
    if isinstance(cell, MarcoCell):
        return not cell.changes
    return True


def _curves(axis: Any, own: list[tuple[Cell, Measured]], horizontal: str) -> None:
    titles: dict[str, Any] = {"MARCO, paper": COLOURS[0], "MARCO, default": COLOURS[3]}
    others = iter(COLOURS[1:3] + COLOURS[4:])
    for cell, measured in own:
        if cell.title not in titles:
            titles[cell.title] = next(others)
        colour = titles[cell.title]
        seen = cell.title in axis.get_legend_handles_labels()[1]
        if isinstance(cell, MarcoCell) and horizontal == "samples":
            _final_point(axis, measured, colour, None if seen else cell.title)
            continue
        curves = list(measured.curve().values())
        length = min(map(len, curves))
        x = np.mean([[getattr(row, horizontal) for row in rows[:length]] for rows in curves], axis=0)
        y = np.array([[row.value for row in rows[:length]] for rows in curves])
        error = y.std(0) / len(curves) ** 0.5
        axis.plot(x, y.mean(0), color=colour, label=None if seen else cell.title)
        axis.fill_between(x, y.mean(0) - error, y.mean(0) + error, color=colour, alpha=0.2)


def _final_point(axis: Any, measured: Measured, colour: Any, title: str | None) -> None:
    values, samples = measured.final(), measured.rows[-1].samples
    error = values.std() / len(values) ** 0.5
    axis.errorbar([samples], [values.mean()], [error], fmt="o", color=colour, label=title)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
