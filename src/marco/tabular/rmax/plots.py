"""Learning curves of tabular learners."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marco.tabular.rmax.loop import Run


def check_figure(path: Path) -> None:
    """Whether a figure can be drawn into a file, before hours go into what it is to show."""
    from matplotlib.backend_bases import FigureCanvasBase

    folder, kinds = path.absolute().parent, FigureCanvasBase.get_supported_filetypes()
    if not folder.is_dir():
        raise ValueError(f"--figure: there is no folder {str(folder)!r}: make it first.")
    if path.suffix[1:].lower() not in kinds:
        raise ValueError(f"--figure: {path.name!r} must end in one of .{', .'.join(sorted(kinds))}.")


def draw_runs(runs: Sequence[Run], title: str, path: Path) -> None:
    """Regret, escape probability and known pairs by episode: each run, and the mean."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6))
    last = max(_last_change(run) for run in runs) + 1
    episodes = np.unique(np.geomspace(1, last + 1, 400).astype(int)) - 1
    for axis, name in zip(axes, ("regret", "escape", "known"), strict=True):
        curves = np.array([_curve(run, name, episodes) for run in runs])
        axis.step(episodes + 1, curves.T, color="tab:blue", alpha=max(0.05, 0.5 / len(runs)), linewidth=0.7)
        axis.step(episodes + 1, curves.mean(0), color="black", linewidth=1.5)
        axis.set(xscale="log", xlabel="episode")
    axes[0].set(ylabel="regret of the team, exact", title=title)
    axes[1].set(ylabel="probability to meet an unknown pair")
    axes[2].set(ylabel="known pairs")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _last_change(run: Run) -> int:
    return sum(phase.episodes for phase in run.phases[:-1])


def _curve(run: Run, name: str, episodes: Any) -> Any:
    """A quantity of a run at given episodes."""
    ends = np.cumsum([phase.episodes for phase in run.phases])
    index = np.minimum(np.searchsorted(ends, episodes, "right"), len(run.phases) - 1)
    return np.array([float(getattr(phase, name)) for phase in run.phases])[index]
