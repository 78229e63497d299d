"""Figures of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def run_figure(folder: Path) -> Path:
    """What was collected, what the model was worth, and what the teams are worth: figures/run.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    _losses(left, [row for row in rows if row["phase"] == "fit"])
    _exploration(middle, [row for row in rows if row["phase"] == "explore" and row["numbers"]])
    _teams(right, result)
    path = folder / "figures" / "run.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _losses(axes: Any, fits: list[dict[str, Any]]) -> None:
    for name in fits[0]["numbers"]:
        samples = [row["samples"] for row in fits]
        axes.plot(samples, [np.mean(row["numbers"][name]) for row in fits], marker="o", label=name)
    axes.set(title="the model", xlabel="real samples", ylabel="held-out loss")
    axes.legend(fontsize=8)


def _exploration(axes: Any, phases: list[dict[str, Any]]) -> None:
    axes.set(title="the exploration policy, in the model", xlabel="real samples", ylabel="return with bonus")
    if phases:
        returns = np.array([row["numbers"]["exploration_return"] for row in phases])
        axes.plot([row["samples"] for row in phases], returns, color="C1", alpha=0.5, marker=".")


def _teams(axes: Any, result: dict[str, Any]) -> None:
    """Imagined against real return: on the diagonal the model was right about the team."""
    real = [row["mean"] for row in result["real"]]
    axes.scatter(result["imagined"], real, zorder=3)
    ends = [min(*real, *result["imagined"]), max(*real, *result["imagined"])]
    axes.plot(ends, ends, color="0.7")
    if result["optimum"] is not None:
        axes.axhline(result["optimum"], color="C2", linestyle="--", label="optimum")
        axes.legend(fontsize=8)
    samples = max(result["samples"])
    axes.set(title=f"the teams, {samples:,} real samples", xlabel="imagined return", ylabel="real return")
