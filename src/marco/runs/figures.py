"""Figures of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from marco.algorithm.config import MarcoConfig
from marco.runs.checkpoint import read_metrics
from marco.runs.run import Run
from marco.runs.visited import distinct_so_far, spread_of_chunks

Rows = list[dict[str, Any]]


def run_figure(run: Run) -> Path:
    """What was collected and learned, and the value of the teams: figures/run.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    seeds, result = len(run.config.seeds), run.result
    # A damaged log may have lost some of its numbers: what is left is drawn.
    rows = [row for row in read_metrics(run.folder) if {len(v) for v in row["metrics"].values()} <= {seeds}]
    if isinstance(run.config.algorithm, MarcoConfig):
        figure, axes = plt.subplots(2, 3, figsize=(14, 7.5), layout="constrained")
        _returns(axes[0, 0], _of(rows, "collect"), result, "while collecting, by chunk")
        _imagined(axes[0, 1], result)
        _seconds(axes[0, 2], rows)
        _losses(axes[1, 0], _of(rows, "fit"))
        _uncertainty(axes[1, 1], _of(rows, "collect"))
        _visited(axes[1, 2], run, run.config.algorithm)
    else:
        figure, axes = plt.subplots(1, 1, figsize=(7, 4.5), layout="constrained", squeeze=False)
        _returns(axes[0, 0], rows, result, "greedy team, on the way")
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8, frameon=False)
    path = run.folder / "figures" / "run.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _of(rows: Rows, phase: str) -> Rows:
    return [row for row in rows if row["phase"] == phase]


def _with(rows: Rows, name: str) -> Rows:
    """The rows that have this metric of every seed."""
    return [row for row in rows if None not in row["metrics"].get(name, [None])]


def _returns(axes: Any, rows: Rows, result: dict[str, Any], label: str) -> None:
    if whole := _with(rows, "return"):
        _line(axes, whole, "return", label=label, color="C0")
    real = [row["mean"] for row in result["real"]]
    error = [1.96 * row["standard_error"] for row in result["real"]]
    axes.errorbar(result["samples"], real, error, fmt="o", color="C3", capsize=3, label="the final teams")
    if result["optimum"] is not None:
        axes.axhline(result["optimum"], color="C2", linestyle="--", label="optimum")
    axes.set(title="Real return", xlabel="real samples", ylabel="return", xlim=(0, None))


def _imagined(axes: Any, result: dict[str, Any]) -> None:
    real = [row["mean"] for row in result["real"]]
    error = [1.96 * row["standard_error"] for row in result["real"]]
    low, high = min(*real, *result["imagined"]), max(*real, *result["imagined"])
    room = max(0.1 * (high - low), 0.05 * abs(high), 0.01)  # a small difference is to look small
    ends = [low - room, high + room]
    axes.plot(ends, ends, color="0.7", label="the model is right")
    axes.errorbar(result["imagined"], real, error, fmt="o", color="C3", capsize=3, label="a team")
    axes.set(title="Imagined and real return", xlabel="in the model", ylabel="in the environment")


def _seconds(axes: Any, rows: Rows) -> None:
    phases = dict.fromkeys(row["phase"] for row in rows)
    took = {phase: sum(row["seconds"] for row in _of(rows, phase)) for phase in phases}
    shown = {phase: seconds for phase, seconds in took.items() if seconds > 0.5} or took
    axes.barh(list(shown), list(shown.values()), color="C0")
    axes.invert_yaxis()
    axes.set(title="Time, compilation included", xlabel="seconds")


def _losses(axes: Any, fits: Rows) -> None:
    """The loss above its lowest: chance in the environment leaves a floor that no model goes below."""
    for number, name in enumerate(dict.fromkeys(name for row in fits for name in row["metrics"])):
        if known := _with(fits, name):
            loss = np.array([row["metrics"][name] for row in known], float).mean(1)
            samples = [row["samples"] for row in known]
            axes.plot(samples, loss - loss.min(), color=f"C{number}", marker="o", markersize=4, label=name)
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set(
        title="Held-out loss of the model above its lowest",
        xlabel="real samples",
        ylabel="nats per sample",
        xlim=(0, None),
    )


def _uncertainty(axes: Any, chunks: Rows) -> None:
    if known := _with(chunks, "uncertainty"):
        _line(axes, known, "uncertainty", label="mean over its steps, under the model before", color="C1")
        axes.set_ylim(bottom=0.0)
    axes.set(
        title="Uncertainty of what was collected", xlabel="real samples", ylabel="r-tilde", xlim=(0, None)
    )


def _visited(axes: Any, run: Run, config: MarcoConfig) -> None:
    spec, have = run.env.spec, int(run.dataset.samples.min())
    schedule = tuple(point for point in config.schedule if point <= have)  # a run may have ended early
    seeds = [run.dataset.episodes(index) for index in range(len(run.config.seeds))]
    axes.axvspan(0, config.first_chunk, color="0.93", label="before the first model")
    if spec.state_has_numbers:
        each = [spread_of_chunks(episodes, schedule, spec) for episodes in seeds]
        for name in each[0]:
            spread = np.mean([one[name] for one in each], axis=0)
            if spread[0] > 0.0:
                axes.plot(schedule, spread / spread[0], marker="o", markersize=4, label=name)
        words = "standard deviation of each chunk over the first's"
    else:
        counts = [distinct_so_far(episodes) for episodes in seeds]
        for number, name in enumerate(counts[0]):
            for one in counts:
                label = name if one is counts[0] else None
                axes.plot(np.arange(1, len(one[name]) + 1), one[name], color=f"C{number}", label=label)
        words = "different ones so far"
    names = {"explorer": "the exploration policy", "team": "the team", "random": "random play"}
    helped = " and the team" if config.team_share and config.collector == "explorer" else ""
    title = f"Visited; collected by {names[config.collector]}{helped}"
    axes.set(title=title, xlabel="real samples", ylabel=words, xlim=(0, None))


def _line(axes: Any, rows: Rows, name: str, label: str, color: str) -> None:
    """The mean over seeds, with every seed behind it."""
    samples = [row["samples"] for row in rows]
    values = np.array([row["metrics"][name] for row in rows], float)
    if values.shape[1] > 1:
        axes.plot(samples, values, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(samples, values.mean(1), color=color, marker="o", markersize=4, label=label)
