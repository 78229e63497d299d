"""Return against real samples, a panel for each environment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marco.statistics import mean
from marco.sweeps.compare import Group, curve


def draw(groups: Sequence[Group], path: Path) -> None:
    """A line for each setting over its budgets, or over the way of its runs; bands and bars are 95%."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    if not path.parent.is_dir():
        raise ValueError(f"--figure {path}: there is no folder {path.parent}.")
    if path.suffix[1:] not in (known := plt.figure().canvas.get_supported_filetypes()):
        raise ValueError(f"--figure {path} must end in one of {', '.join(known)}.")
    plt.close("all")
    worlds = list(dict.fromkeys(group.world for group in groups))
    settings = list(dict.fromkeys(group.setting for group in groups))
    figure, axes = plt.subplots(1, len(worlds), figsize=(5.5 * len(worlds), 4), squeeze=False)
    for axis, world in zip(axes[0], worlds, strict=True):
        for place, setting in enumerate(settings):
            own = [group for group in groups if (group.world, group.setting) == (world, setting)]
            if own:
                _line(axis, own, setting, plt.get_cmap("tab10")(place % 10))
        if (optimum := next(group.optimum for group in groups if group.world == world)) is not None:
            axis.axhline(optimum, color="grey", linestyle=":", label="optimum")
        axis.set(title=world, xlabel="real samples", ylabel="return")
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _line(axis: Any, groups: Sequence[Group], label: str, colour: Any) -> None:
    samples, runs = curve(groups)
    found = [mean([values]) for values in runs]
    middle = [one.estimate for one in found]
    if len(samples) == 1:
        bars = [[middle[0] - found[0].low], [found[0].high - middle[0]]]
        axis.errorbar(samples, middle, bars, fmt="o", color=colour, label=label)
        return
    axis.plot(samples, middle, "o-", markersize=3, color=colour, label=label)
    low, high = [one.low for one in found], [one.high for one in found]
    axis.fill_between(samples, low, high, color=colour, alpha=0.2)
