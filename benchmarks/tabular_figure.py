"""The figure of the study of exploration."""

import json
from pathlib import Path
from typing import Any

from tabular_learning import MARGIN, STUDIES, M


def draw(out: Path) -> None:
    """For each problem: samples to a good team, and the share of runs that never get there."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = [out / f"rmax-{name}.json" for name in STUDIES if (out / f"rmax-{name}.json").exists()]
    figure, axes = pyplot.subplots(2, len(paths), figsize=(5 * len(paths), 7), squeeze=False, sharex="col")
    for column, path in enumerate(paths):
        study = json.loads(path.read_text())
        for family, marker in (("rmax", "o"), ("self-loop", "s"), ("centralised", "^")):
            cells = {m: study["cells"].get(f"{family} m={m}") for m in M}
            _points(
                axes[:, column], {m: cell["summary"] for m, cell in cells.items() if cell}, family, marker
            )
        for label, style in (("random", ":"), ("epsilon-greedy", "--"), ("bonus", "-."), ("psrl", "-")):
            if label in study["cells"]:
                _line(axes[:, column], study["cells"][label]["summary"], label, style)
        axes[0, column].set(title=f"{study['problem']}, horizon {study['horizon']}", yscale="log")
        axes[1, column].set(xlabel="m", xscale="log", ylim=(-0.05, 1.05))
        axes[1, column].set_xticks(M, [str(m) for m in M])
        axes[1, column].minorticks_off()
    axes[0, 0].set_ylabel(f"samples to a team within {MARGIN} (median)")
    axes[1, 0].set_ylabel("share of runs that fail (95% interval)")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out / "rmax.png", dpi=110)
    print(f"Drawn: {out / 'rmax.png'}")


def _points(axes: Any, by_m: dict[int, dict[str, Any]], label: str, marker: str) -> None:
    reached = {m: cell["samples_to_reach"] for m, cell in by_m.items() if cell["samples_to_reach"]}
    (line,) = axes[0].plot(list(reached), [r[1] for r in reached.values()], marker=marker, label=label)
    share = [cell["failing"] / cell["runs"] for cell in by_m.values()]
    low = [max(0.0, s - cell["failing_interval"][0]) for s, cell in zip(share, by_m.values(), strict=True)]
    high = [max(0.0, cell["failing_interval"][1] - s) for s, cell in zip(share, by_m.values(), strict=True)]
    axes[1].errorbar(list(by_m), share, [low, high], marker=marker, color=line.get_color(), capsize=3)


def _line(axes: Any, cell: dict[str, Any], label: str, style: str) -> None:
    if cell["samples_to_reach"]:
        axes[0].axhline(cell["samples_to_reach"][1], linestyle=style, color="black", label=label, alpha=0.6)
    axes[1].axhline(cell["failing"] / cell["runs"], linestyle=style, color="black", alpha=0.6)
