"""Tables: how fast problems are solved, how far that goes, and which way to explore needs the fewest samples.

    python benchmarks/tabular.py solve [--seconds 60] [--files FOLDER] [--out FOLDER]
    python benchmarks/tabular.py rmax [--runs 300] [--minutes 30] [--problems NAME ...] [--methods NAME ...]
        [--out FOLDER]
    python benchmarks/tabular.py figure [--out FOLDER]

`rmax` adds runs to what the folder already holds, so that it can be stopped and gone on with; the n-th run
of a cell has the seed n.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from marco.tabular.comparators import (
    Centralised,
    EpsilonGreedy,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
)
from marco.tabular.known_model import make_task
from marco.tabular.learning import Method, Run, learn
from marco.tabular.problems import load
from marco.tabular.rmax import RMax
from marco.tabular.solver import solve
from marco.tabular.statistics import clopper_pearson
from record import RESULTS, provenance

OUT = RESULTS / "tabular"
MARGIN = 0.05
# problem: (horizons, the published value where one is known)
SOLVED: dict[str, dict[int, float | None]] = {
    "dectiger": {2: -4.0, 3: 5.190812, 4: 4.802755, 5: 7.026451, 6: 10.381625, 7: None},
    "broadcast-channel": {
        2: 2.0,
        3: 2.99,
        4: 3.89,
        5: 4.79,
        10: 9.29,
        20: 18.313228,
        30: 27.421850,
        100: None,
    },
    "recycling": {
        2: 7.0,
        3: 10.660125,
        4: 13.38,
        5: 16.486,
        6: 19.5542,
        10: 31.863889,
        15: None,
        30: None,
        60: None,
    },
    "gridsmall": {1: 0.37, 2: 0.91, 3: 1.550444, 4: 2.241577, 5: 2.970496, 6: None},
    "Grid3x3corners": {2: 0.0, 3: 0.1332, 4: 0.4329, 5: 0.895656, 6: None, 7: None},
    "Mars": {2: 5.8, 3: 9.38, 4: 10.1808, 5: None, 6: None},
    "switch": {3: 2 / 9, 4: 4 / 9, 5: 50 / 81, 6: 20 / 27, 7: None},
    "bridge": {3: None, 5: None, 8: None},
}
FILES = ("Grid3x3corners", "Mars")
"""Problems that are no part of the library: read from --files."""

# problem: (horizon, episodes, seconds a plan may take, seconds of a turn)
LEARNED: dict[str, tuple[int, int, float, float]] = {
    "recycling": (4, 2_000, 2.0, 120.0),
    "gridsmall": (3, 10_000, 2.0, 120.0),
    "switch": (4, 5_000, 0.3, 100.0),
}
FAMILIES = ("rmax", "self-loop", "centralised", "random", "epsilon-greedy", "bonus", "psrl")


def methods(seconds: float) -> dict[str, Method]:
    """Every cell of the study: a method with its setting."""
    cells: dict[str, Method] = {}
    for m in (1, 2, 5, 10, 20):
        cells[f"rmax m={m}"] = RMax(m, "absorbing", seconds)
        cells[f"self-loop m={m}"] = RMax(m, "self-loop", seconds)
        cells[f"centralised m={m}"] = Centralised(m, seconds)
    cells["random"] = RandomExploration(seconds)
    cells["epsilon-greedy"] = EpsilonGreedy(seconds=seconds)
    cells["bonus"] = ExplorationBonus(seconds=seconds)
    cells["psrl"] = PosteriorSampling(seconds=seconds)
    return cells


# --- Solving -----------------------------------------------------------------------------------------------


def study_solver(seconds: float, files: Path | None, out: Path) -> None:
    """Solve everything within a time limit each; write the table."""
    rows = []
    for name, horizons in SOLVED.items():
        if name in FILES and (files is None or not (files / f"{name}.dpomdp.gz").exists()):
            print(f"{name}: left out, there is no file")
            continue
        problem = load(str(files / f"{name}.dpomdp.gz") if files and name in FILES else name)
        problem.dynamics  # noqa: B018  (made before the clock starts)
        for horizon, published in horizons.items():
            began = time.process_time()
            found = solve(problem.dynamics, problem.steps(horizon), seconds=seconds)
            row = {
                "problem": name,
                "horizon": horizon,
                "value": found.lower,
                "upper": found.upper,
                "optimal": found.optimal,
                "published": published,
                "seconds": round(found.seconds, 3),
                "cpu_seconds": round(time.process_time() - began, 3),
                "occupancy_states": found.nodes,
            }
            rows.append(row)
            print(row, flush=True)
    _write(out / "solver.json", {"seconds_each": seconds, "rows": rows})


# --- Learning ----------------------------------------------------------------------------------------------


def study_learning(runs: int, minutes: float, problems: list[str], families: list[str], out: Path) -> None:
    """Go round the problems, adding runs for a while each, until all have enough or the time is up."""
    began = time.perf_counter()
    deadline, pending = began + 60.0 * minutes, list(problems)
    while pending and time.perf_counter() < deadline:
        name = pending.pop(0)
        path = out / f"rmax-{name}.json"
        cells = json.loads(path.read_text())["cells"] if path.exists() else {}
        horizon, episodes, seconds, share = LEARNED[name]
        if _turn(name, runs, min(deadline, time.perf_counter() + share), families, cells):
            pending.append(name)
        facts = {"problem": name, "horizon": horizon, "episodes": episodes, "plan_seconds": seconds}
        _write(path, {**facts, "margin": MARGIN, "cells": cells})
        print(f"{name}: written after {time.perf_counter() - began:.0f} s", flush=True)


def _turn(name: str, runs: int, deadline: float, families: list[str], cells: dict[str, Any]) -> bool:
    """Add runs to the cells that have had the least until the deadline; whether any still has too few."""
    horizon, episodes, seconds, _ = LEARNED[name]
    problem = load(name)
    task, steps = make_task(problem), problem.steps(horizon)
    optimum = solve(problem.dynamics, steps).lower
    asked = {
        label: way for label, way in methods(seconds).items() if {label, label.split()[0]} & set(families)
    }
    for label in asked:
        cells.setdefault(label, {"seconds": 0.0, "rows": []})
    while time.perf_counter() < deadline:
        label = min(asked, key=lambda label: _had(cells[label], runs))
        cell = cells[label]
        if len(cell["rows"]) >= runs:
            return False
        began = time.process_time()
        rng = np.random.default_rng(len(cell["rows"]))
        run = learn(rng, task, steps, asked[label], episodes, optimum)
        cell["rows"].append(_row(run))
        cell["seconds"] = round(cell["seconds"] + time.process_time() - began, 2)
        cell["summary"] = _summary(cell["rows"])
    return True


def _had(cell: dict[str, Any], runs: int) -> float:
    """How much a cell has had: its runs, weighted so that dear ones take longer turns but not equal ones."""
    number = len(cell["rows"])
    if not number:
        return -1.0
    return np.inf if number >= runs else number * np.sqrt(cell["seconds"] / number)


COLUMNS = ("samples_until", "samples", "regret", "final", "episodes_worse", "escapes", "plans", "uncertified")


def _row(run: Run) -> list[Any]:
    return [
        run.samples_until(MARGIN),
        run.samples,
        round(run.regret, 5),
        int(run.final),
        run.worse_than(MARGIN),
        sum(phase.escapes for phase in run.phases),
        len(run.phases),
        sum(not phase.certified for phase in run.phases),
    ]


def _summary(rows: list[list[Any]]) -> dict[str, Any]:
    reached = [row[0] for row in rows if row[0] is not None]
    failing = len(rows) - len(reached)
    low, high = clopper_pearson(failing, len(rows))
    return {
        "runs": len(rows),
        "failing": failing,
        "failing_interval": [round(low, 4), round(high, 4)],
        "samples_to_reach": np.percentile(reached, [25, 50, 75]).tolist() if reached else None,
        "samples_median": float(np.median([row[1] for row in rows])),
        "regret_mean": round(float(np.mean([row[2] for row in rows])), 5),
        "episodes_worse_mean": float(np.mean([row[4] for row in rows])),
        "escapes_most": max(row[5] for row in rows),
        "uncertified_share": round(sum(row[7] for row in rows) / sum(row[6] for row in rows), 4),
    }


# --- The figure --------------------------------------------------------------------------------------------


def draw(out: Path) -> None:
    """For each problem: samples to a good team, and the share of runs that never get there."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = [out / f"rmax-{name}.json" for name in LEARNED if (out / f"rmax-{name}.json").exists()]
    figure, axes = pyplot.subplots(2, len(paths), figsize=(5 * len(paths), 7), squeeze=False, sharex="col")
    for column, path in enumerate(paths):
        study = json.loads(path.read_text())
        for family, marker in (("rmax", "o"), ("self-loop", "s"), ("centralised", "^")):
            cells = {m: study["cells"].get(f"{family} m={m}") for m in (1, 2, 5, 10, 20)}
            _points(
                axes[:, column], {m: cell["summary"] for m, cell in cells.items() if cell}, family, marker
            )
        for label, style in (("random", ":"), ("epsilon-greedy", "--"), ("bonus", "-."), ("psrl", "-")):
            if label in study["cells"]:
                _line(axes[:, column], study["cells"][label]["summary"], label, style)
        axes[0, column].set(title=f"{study['problem']}, horizon {study['horizon']}", yscale="log")
        axes[1, column].set(xlabel="m", xscale="log", ylim=(-0.05, 1.05))
        axes[1, column].set_xticks((1, 2, 5, 10, 20), ("1", "2", "5", "10", "20"))
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


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = (
        {"columns": COLUMNS, **provenance(), **content} if "cells" in content else {**provenance(), **content}
    )
    path.write_text(json.dumps(ordered, indent=None, separators=(",", ":")).replace("],[", "],\n[") + "\n")


def main() -> None:
    """Run a study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("solve", "rmax", "figure"))
    parser.add_argument("--seconds", type=float, default=60.0, help="the limit of each solved entry")
    parser.add_argument("--files", type=Path, help="a folder with the problem files that are not ours")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--problems", nargs="+", choices=tuple(LEARNED), default=list(LEARNED))
    parser.add_argument(
        "--methods", nargs="+", default=list(FAMILIES), help="'rmax', or one cell: 'rmax m=5'"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.study == "solve":
        study_solver(given.seconds, given.files, given.out)
    elif given.study == "rmax":
        study_learning(given.runs, given.minutes, given.problems, given.methods, given.out)
    else:
        draw(given.out)


if __name__ == "__main__":
    main()
