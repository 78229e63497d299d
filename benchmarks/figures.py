"""The figures of the documents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from record import CONTROLLERS, MARCO, Results
from tables.common import Summary, curve, summary
from tables.marco import BASELINES, POOLED, pooled
from tables.tabular import PROBLEMS, Cell, Runs, rmax_runs

OURS, THEIRS, GREY = "#c8441b", "#33658a", "#666666"
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "savefig.facecolor": "white",
}


class Panel(NamedTuple):
    """A title, limits of the return, and where the names stand: ours in points from the first budget."""

    title: str
    limits: tuple[float, float]
    ours: tuple[int, int]
    theirs: tuple[float, float]


PANELS = {
    "switch": Panel("Switch riddle", (0.0, 0.8), (0, -20), (0.98, 0.34)),
    "bridge": Panel("Riddle behind a bridge", (0.0, 0.8), (0, -22), (0.98, 0.34)),
    "reference": Panel("MPE simple reference", (-24.0, -5.0), (14, -2), (0.98, 0.12)),
}
LABEL = {"textcoords": "offset points", "fontsize": 11, "fontweight": "bold"}
M = (1, 2, 5, 10, 20)


def draw_headline(results: Results, path: Path) -> None:
    """Return over real steps: MARCO and the best model-free learner in three environments."""
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(1, len(PANELS), figsize=(10.5, 3.5), layout="constrained")
        for axis, world in zip(axes, PANELS, strict=True):
            _panel(results, axis, world)
        axes[0].set_ylabel("return of the greedy team")
        figure.supxlabel("real environment steps", fontsize=11, color="#222222")
        figure.savefig(path, dpi=160)
        pyplot.close(figure)


def _panel(results: Results, axis: Any, world: str) -> None:
    panel = PANELS[world]
    names = {world + ending for ending in POOLED}
    budgets = sorted({row["samples"] for row in results.read(MARCO) if row["study"] in names})
    ours = [
        (samples, summary([row["return"] for row in pooled(results, world, samples)])) for samples in budgets
    ]
    theirs = curve(results, BASELINES[world])
    _band(axis, ours, OURS, "o")
    _band(axis, theirs, THEIRS, "")
    level, name = _best(results, world)
    axis.axhline(level, color=GREY, linestyle="--", linewidth=1, zorder=1)
    corner = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
    axis.annotate(name, (1, level), (0, 4), color=GREY, fontsize=10, **corner)
    axis.annotate("MARCO", (budgets[0], ours[0][1].mean), panel.ours, color=OURS, **LABEL)
    learner = f"model-free {BASELINES[world].split('-')[1].upper()}"
    axis.annotate(learner, panel.theirs, (0, 0), color=THEIRS, xycoords="axes fraction", ha="right", **LABEL)
    axis.set(xscale="log", title=panel.title, ylim=panel.limits)
    axis.locator_params(axis="y", nbins=5)
    axis.set_xlim(budgets[0] / 1.6, theirs[-1][0] * 1.4)
    axis.xaxis.set_major_formatter(
        lambda steps, _: f"{steps / 1e3:,.0f}k" if steps < 1e6 else f"{steps / 1e6:.0f}M"
    )
    axis.grid(axis="y", color="#e8e8e8", linewidth=0.8)
    axis.set_axisbelow(True)


def _band(axis: Any, points: Sequence[tuple[float, Summary]], colour: str, marker: str) -> None:
    """Means, with the 95% interval as a band."""
    samples = [used for used, _ in points]
    means = np.array([found.mean for _, found in points])
    width = np.array([found.half_width for _, found in points])
    axis.fill_between(samples, means - width, means + width, color=colour, alpha=0.18, linewidth=0)
    axis.plot(samples, means, color=colour, linewidth=2, marker=marker or None, markersize=5, zorder=3)


def _best(results: Results, world: str) -> tuple[float, str]:
    """The optimum where it is known, else the best hand-written team."""
    known = next(row["optimum"] for row in results.read(MARCO) if row["world"] == world)
    if known is not None:
        return known, "optimum"
    return max(
        row["return"] for row in results.read(CONTROLLERS) if row["world"] == world
    ), "hand-written team"


def draw_rmax(results: Results, path: Path) -> None:
    """For each problem: samples to a good team, and the share of runs that never find one."""
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, len(PROBLEMS), figsize=(11, 6), sharex="col", layout="constrained")
        for column, (problem, title) in enumerate(PROBLEMS.items()):
            _rmax_panel(axes[:, column], rmax_runs(results, problem))
            axes[0, column].set(title=title, yscale="log")
            axes[1, column].set(xlabel="m", xscale="log", ylim=(-0.05, 1.05))
            axes[1, column].set_xticks(M, [str(m) for m in M])
            axes[1, column].minorticks_off()
        axes[0, 0].set_ylabel("samples to within 0.05 (median)")
        axes[1, 0].set_ylabel("share of failing runs")
        figure.legend(
            *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=7, frameon=False
        )
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _rmax_panel(axes: Any, cells: dict[Cell, Runs]) -> None:
    for family, marker in (("rmax", "o"), ("self-loop", "s"), ("centralised", "^")):
        runs = {m: cells[family, m] for m in M}
        median = {m: each.quartiles[1] for m, each in runs.items() if each.quartiles}
        (line,) = axes[0].plot(list(median), list(median.values()), marker=marker, label=family)
        share = np.array([each.failing / each.runs for each in runs.values()])
        interval = np.array([each.interval for each in runs.values()]).T
        error = np.abs(interval - share)
        axes[1].errorbar(M, share, error, marker=marker, color=line.get_color(), capsize=3)
    for method, style in (("random", ":"), ("epsilon-greedy", "--"), ("bonus", "-."), ("psrl", "-")):
        each = cells[method, None]
        look = {"linestyle": style, "color": "black", "alpha": 0.6}
        axes[0].plot([], [], label=method, **look)
        if each.quartiles:
            axes[0].axhline(each.quartiles[1], **look)
        axes[1].axhline(each.failing / each.runs, **look)
