"""Learning curves of runs on tables."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from marco.tabular.rmax.loop import LearningRun

REGRET = "regret of the team (exact)"
ESCAPE = "probability to meet an unknown pair"


def check_figure(path: Path) -> None:
    """Refuse a file that cannot be written, before the runs that it is to show."""
    from matplotlib.backend_bases import FigureCanvasBase

    folder, kinds = path.absolute().parent, FigureCanvasBase.get_supported_filetypes()
    if not folder.is_dir():
        raise ValueError(f"--figure: there is no folder {str(folder)!r}: make it first.")
    if path.suffix[1:].lower() not in kinds:
        raise ValueError(f"--figure: {path.name!r} must end in one of .{', .'.join(sorted(kinds))}.")


def draw_runs(runs: Sequence[LearningRun], title: str, path: Path) -> None:
    """Draw regret, escape probability and known pairs by episode: each run, and the mean.

    Methods without unknown pairs have no escape probability, hence no such panel.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = _panels(runs)
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.8), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    for axis, (name, label) in zip(axes, panels.items(), strict=True):
        _draw_panel(axis, runs, name)
        axis.set(xscale="log", xlabel="episode", ylabel=label)
    if len(runs) > 1:
        axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panels(runs: Sequence[LearningRun]) -> dict[str, str]:
    """The fields of a phase to draw, with their labels."""
    if all(math.isnan(phase.escape) for run in runs for phase in run.phases):
        return {"regret": REGRET, "known": "pairs visited at least once"}
    return {"regret": REGRET, "escape": ESCAPE, "known": "known pairs"}


def _draw_panel(axis: Any, runs: Sequence[LearningRun], name: str) -> None:
    last = max(_last_change(run) for run in runs) + 1
    episodes = np.unique(np.geomspace(1, last + 1, 400).astype(int)) - 1
    curves = np.array([_curve(run, name, episodes) for run in runs])
    if len(runs) > 1:
        faint = {"color": "tab:blue", "alpha": 0.6 / math.sqrt(len(runs)), "linewidth": 0.7}
        axis.step(episodes + 1, curves.T, where="post", **faint)
        axis.plot([], [], color="tab:blue", linewidth=0.7, label="each run")
    axis.step(episodes + 1, curves.mean(0), where="post", color="black", linewidth=1.5, label="mean")
    if name == "escape" or np.abs(curves).max() < 1e-9:  # a curve of zeros alone would get a range around 0
        axis.set_ylim(-0.02, 1.02)


def _last_change(run: LearningRun) -> int:
    return sum(phase.episodes for phase in run.phases[:-1])


def _curve(run: LearningRun, name: str, episodes: Int[np.ndarray, " E"]) -> Float[np.ndarray, " E"]:
    """A field of the phases, by episode."""
    ends = np.cumsum([phase.episodes for phase in run.phases])
    index = np.minimum(np.searchsorted(ends, episodes, "right"), len(run.phases) - 1)
    return np.array([float(getattr(phase, name)) for phase in run.phases])[index]
