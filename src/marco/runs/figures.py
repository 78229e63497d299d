"""Figures of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from marco.data.dataset import Dataset
from marco.runs.run import MarcoRun
from marco.runs.folder import read_metrics
from marco.runs.visited import distinct_so_far, spread_of_chunks

Rows = list[dict[str, Any]]


def run_figure(run: MarcoRun) -> Path:
    """What was collected and learned, and what came of it: figures/run.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = read_metrics(run.out)
    result = json.loads((run.out / "result.json").read_text())
    figure, axes = plt.subplots(2, 3, figsize=(14, 7.5), layout="constrained")
    _returns(axes[0, 0], _of(rows, "collect"), result)
    _imagined(axes[0, 1], result)
    _seconds(axes[0, 2], rows)
    _losses(axes[1, 0], _of(rows, "fit"))
    _uncertainty(axes[1, 1], _of(rows, "collect"))
    _visited(axes[1, 2], run)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8, frameon=False)
    path = run.out / "figures" / "run.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _of(rows: Rows, phase: str) -> Rows:
    return [row for row in rows if row["phase"] == phase]


def _returns(axes: Any, chunks: Rows, result: dict[str, Any]) -> None:
    told = [row for row in chunks if None not in row["numbers"]["return"]]
    if told:
        _line(axes, told, "return", label="while collecting, by chunk", color="C0")
    real = [row["mean"] for row in result["real"]]
    axes.scatter(result["samples"], real, color="C3", zorder=3, label="the teams in the end")
    if result["optimum"] is not None:
        axes.axhline(result["optimum"], color="C2", linestyle="--", label="optimum")
    axes.set(title="Real return", xlabel="real samples", ylabel="return", xlim=(0, None))


def _imagined(axes: Any, result: dict[str, Any]) -> None:
    real = [row["mean"] for row in result["real"]]
    low, high = min(*real, *result["imagined"]), max(*real, *result["imagined"])
    room = max(0.1 * (high - low), 0.05 * abs(high), 0.01)  # a small difference is to look small
    ends = [low - room, high + room]
    axes.plot(ends, ends, color="0.7", label="the model is right")
    axes.scatter(result["imagined"], real, color="C3", zorder=3, label="a team")
    axes.set(title="Imagined and real return", xlabel="in the model", ylabel="in the world")


def _seconds(axes: Any, rows: Rows) -> None:
    phases = ["collect", "fit", "team", "explore", "finish"]
    axes.barh(phases, [sum(row["seconds"] for row in _of(rows, phase)) for phase in phases], color="C0")
    axes.invert_yaxis()
    axes.set(title="Time, compilation included", xlabel="seconds")


def _losses(axes: Any, fits: Rows) -> None:
    for number, name in enumerate(fits[0]["numbers"]):
        _line(axes, fits, name, label=name, color=f"C{number}")
    axes.set(title="Error of the model, held out", xlabel="real samples", ylabel="loss", xlim=(0, None))


def _uncertainty(axes: Any, chunks: Rows) -> None:
    told = [row for row in chunks if "uncertainty" in row["numbers"]]
    if told:
        _line(axes, told, "uncertainty", label="mean over its steps, under the model before", color="C1")
        axes.set_ylim(bottom=0.0)
    axes.set(
        title="Uncertainty of what was collected", xlabel="real samples", ylabel="r-tilde", xlim=(0, None)
    )


def _visited(axes: Any, run: MarcoRun) -> None:
    spec, schedule = run.true_world.spec, run.settings.schedule
    dataset = Dataset(run.out / "data", spec, len(run.seeds))
    seeds = [dataset.episodes(index) for index in range(len(run.seeds))]
    axes.axvspan(0, run.settings.first, color="0.93", label="before the first model")
    if spec.state_has_numbers:
        each = [spread_of_chunks(episodes, schedule, spec) for episodes in seeds]
        for name in each[0]:
            spread = np.mean([one[name] for one in each], axis=0)
            if spread[0] > 0.0:
                axes.plot(schedule, spread / spread[0], marker="o", markersize=4, label=name)
        words = "spread of each chunk over that of the first"
    else:
        each = [distinct_so_far(episodes) for episodes in seeds]
        for number, name in enumerate(each[0]):
            for one in each:
                label = name if one is each[0] else None
                axes.plot(np.arange(1, len(one[name]) + 1), one[name], color=f"C{number}", label=label)
        words = "different ones so far"
    axes.set(title=f"Visited; {_collector(run)}", xlabel="real samples", ylabel=words, xlim=(0, None))


def _collector(run: MarcoRun) -> str:
    names = {"explorer": "the exploration policy", "team": "the team", "random": "chance"}
    return f"collected by {names[run.settings.collector]}"


def _line(axes: Any, rows: Rows, name: str, label: str, color: str) -> None:
    """The mean over seeds, with every seed behind it."""
    samples = [row["samples"] for row in rows]
    values = np.array([row["numbers"][name] for row in rows], float)
    if values.shape[1] > 1:
        axes.plot(samples, values, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(samples, values.mean(1), color=color, marker="o", markersize=4, label=label)
