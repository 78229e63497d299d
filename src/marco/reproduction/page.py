"""The page of the reproduction: claims with their verdicts, tables and figures."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from marco.data.storage import write_atomically
from marco.reproduction import figures
from marco.reproduction.cells import (
    BATCH,
    CELLS_OF,
    STUDIES,
    THRESHOLDS,
    WORLDS,
    MarcoCell,
    cells_of,
)
from marco.reproduction.claims import BASE, OPTIMUM, RULES, claims, marco_cells, mark
from marco.reproduction.figures import Found
from marco.reproduction.statistics import (
    MEASURED,
    improvement,
    mean_and_iqm,
    samples_of_mean,
    samples_to,
    stays_from,
)
from marco.reproduction.store import read
from marco.runs.marl_eval import Curve, marl_eval

INTRODUCTION = (
    "`marco reproduce all --out docs/reproduction` runs what is missing and writes this page; with "
    "`--no-run` it only writes it. Intervals are 95% bootstrap intervals over seeds."
)
PAPER_TEXT = (
    f"With the preset `paper` {BATCH} imagined episodes are played side by side, and as many updates follow. "
    "Cells marked * were measured before, by other commands and at other commits (last table), and not with "
    "this one; `switch-paper*` played one episode per update."
)
THRESHOLDS_TEXT = (
    "The first number is for the mean over seeds, with its interval; then how many of the runs get "
    "there, and the median of their samples, where a run that never does counts as more than all."
)


NEAR = 0.95
_MARCO_CELLS = set(BASE.values()) | {"delayed-default"}


def draw(out: Path) -> Path:
    """Draw figures and page from the finished cells; the page's path."""
    found: Found = {
        cell.name: (cell, read(path))
        for cell in cells_of(STUDIES)
        if (path := out / "cells" / f"{cell.name}.csv").exists()
    }
    if not found:
        raise ValueError(f"{out} has no finished cells: there is nothing to draw.")
    _draw_figures(found, out / "figures")
    write_atomically(out / "marl-eval.json", json.dumps(marl_eval(_curves(found))).encode())
    page = out.with_name(f"{out.name}.md")
    write_atomically(page, text(found, out).encode())
    return page


def _draw_figures(found: Found, folder: Path) -> None:
    for old in folder.glob("*.png"):  # the page shows what there is
        old.unlink()
    figures.draw_results(found, folder / "results.png")
    figures.draw_profiles(found, folder / "profiles.png")
    for study in ("exploration", "bonus", "models"):
        names = [cell.name for cell in CELLS_OF[study]]
        if sum(name in found for name in names) > len(_MARCO_CELLS & found.keys() & set(names)):
            figures.draw_ablation(found, names, folder / f"{study}.png")
    if _has_visits(found):
        figures.draw_visitation(
            found, [cell.name for cell in CELLS_OF["visitation"]], folder / "visitation.png"
        )
    if any(cell.name in found for cell in CELLS_OF["tabular"]):
        figures.draw_tabular(found, folder / "tabular.png")


def text(found: Found, out: Path) -> str:
    """The whole page."""
    quick = any(measured.facts.get("quick") for _, measured in found.values())
    pictures = {path.stem for path in (out / "figures").glob("*.png")}
    parts = [
        "# The paper, run again",
        "<!-- Written by `marco reproduce`; edit src/marco/reproduction/page.py instead. -->",
        *(["**Made with --quick: these numbers mean nothing.**"] if quick else []),
        INTRODUCTION,
        RULES,
        PAPER_TEXT,
        "## Claims",
        _markdown(
            ["command", "claim", "paper", "preset", "measured", "verdict"],
            [[f"`marco reproduce {one.study}`", *one[1:]] for one in claims(found)],
        ),
        "## Returns",
        *_picture(
            out, "results", pictures, "Return against policy steps, real samples, and these on a log axis"
        ),
        _returns(found),
        "## Samples to a threshold",
        THRESHOLDS_TEXT,
        _thresholds(found),
        *_profiles(found, out, pictures),
    ]
    for study, title in (
        ("exploration", "The exploration policy"),
        ("bonus", "The exploration bonus"),
        ("models", "Centralised and other models"),
        ("visitation", "What is visited"),
        ("tabular", "Adapted R-MAX"),
    ):
        if study in pictures:
            parts += [f"## {title}", *_picture(out, study, pictures, title)]
        if study == "visitation":
            parts += _visits(found)
        if study == "tabular":
            parts += _tabular(found)
    return "\n\n".join([*parts, "## Where it was run", _sources(found)]).rstrip() + "\n"


def _returns(found: Found) -> str:
    lines = []
    for name, (cell, measured) in found.items():
        values = measured.final()
        mean, iqm = mean_and_iqm(values)
        optimum = OPTIMUM.get(cell.world)
        best = "" if optimum is None else f"{int((values > optimum - 1e-4).sum())} of {len(values)}"
        samples = max(row.samples for row in measured.rows)
        told = [mark(found, name), cell.title, f"{samples:,}", str(len(values))]
        lines.append([*told, str(mean), str(iqm), best])
    return _markdown(["cell", "", "samples", "seeds", "mean", "interquartile mean", "optimal"], lines)


def _thresholds(found: Found) -> str:
    lines = []
    for name, (cell, measured) in found.items():
        if cell.world not in THRESHOLDS or (isinstance(cell, MarcoCell) and cell.changes):
            continue
        cells = []
        for threshold in THRESHOLDS[cell.world]:
            each = [samples_to(rows, threshold) for rows in measured.curve(MEASURED).values()]
            reached = int(np.isfinite(each).sum())
            middle = float(np.quantile(each, 0.5, method="inverted_cdf"))
            told = "never" if not np.isfinite(middle) else f"{middle:,.0f}"
            cells.append(f"{samples_of_mean(measured, threshold)}; {reached} of {len(each)}, {told}")
        while len(cells) < 4:
            cells.append("")
        thresholds = ", ".join(f"{value:g}" for value in THRESHOLDS[cell.world])
        lines.append([mark(found, name), thresholds, *cells])
    return _markdown(["cell", "thresholds", "first", "second", "third", "fourth"], lines)


def _profiles(found: Found, out: Path, pictures: set[str]) -> list[str]:
    worlds = [world for world in WORLDS if f"{world}-free-tuned" in found]
    lines = []
    for preset in ("paper", "default"):
        have = [(world, dict(marco_cells(world))[preset]) for world in worlds]
        have = [(world, name) for world, name in have if name in found]
        for rival in ("paper", "tuned"):
            pairs = [
                (name, f"{world}-free-{rival}") for world, name in have if f"{world}-free-{rival}" in found
            ]
            if pairs:
                ours, theirs = (
                    [found[name][1].final() for name in side] for side in zip(*pairs, strict=True)
                )
                over = ", ".join(name for name, _ in pairs)
                lines.append([preset, rival, str(improvement(ours, theirs)), over])
    if not lines:
        return []
    return [
        "## All environments together",
        *_picture(out, "profiles", pictures, "Performance profiles"),
        "The probability that a run of MARCO is better than a model-free run with all of its samples:",
        _markdown(["MARCO", "model-free", "probability", "over"], lines),
    ]


def _visits(found: Found) -> list[str]:
    if not _has_visits(found):
        return []
    lines = []
    for cell in CELLS_OF["visitation"]:
        if cell.name in found:
            rows = [row for row in found[cell.name][1].rows if row.pairs is not None]
            for samples in sorted({row.samples for row in rows}):
                own = [row for row in rows if row.samples == samples]
                shares = [np.mean([getattr(row, name) for row in own]) for name in ("pairs", "met")]
                logs = [
                    f"{np.mean([getattr(row, name) for row in own]):.1f}" for name in ("r05", "r50", "r95")
                ]
                steps = f"{np.mean([row.steps for row in own]):,.0f}"
                lines.append(
                    [f"`{cell.name}`", f"{samples:,}", steps, *(f"{share:.1%}" for share in shares), *logs]
                )
    header = [
        "cell",
        "samples",
        "model steps",
        "pairs in the data",
        "pairs met",
        "log r-tilde, 5%",
        "50%",
        "95%",
    ]
    return ["Shares are of all pairs (s, a) that can be reached, counted exactly.", _markdown(header, lines)]


def _tabular(found: Found) -> list[str]:
    lines = []
    for cell in CELLS_OF["tabular"]:
        if cell.name in found:
            each = [stays_from(rows, NEAR) for rows in found[cell.name][1].curve().values()]
            middle = float(np.quantile(each, 0.5, method="inverted_cdf"))
            told = "never" if not np.isfinite(middle) else f"{middle:,.0f}"
            reached = f"{int(np.isfinite(each).sum())} of {len(each)}"
            lines.append([f"`{cell.name}`", cell.title, told, reached])
    if not lines:
        return []
    header = [
        "cell",
        "method",
        f"samples until it stays within {1 - NEAR:.0%} of the optimum, median",
        "runs that do",
    ]
    more = "More methods, with 300 runs each: [benchmarks](../benchmarks/README.md)."
    return [_markdown(header, lines), more]


def _has_visits(found: Found) -> bool:
    return any(row.pairs is not None for _, measured in found.values() for row in measured.rows)


def _sources(found: Found) -> str:
    lines = []
    for name, (_, measured) in found.items():
        facts = measured.facts
        seconds = facts.get("seconds")
        told = "" if seconds is None else f"{seconds:,.0f}"
        lines.append([f"`{name}`", facts["commit"], facts["device"], told, facts.get("from", "")])
    return _markdown(["cell", "commit", "device", "seconds, all seeds", "from"], lines)


def _curves(found: Found) -> Iterable[Curve]:
    for name, (cell, measured) in found.items():
        for seed, rows in measured.curve().items():
            yield Curve(cell.world, name, seed, [(row.samples, row.value) for row in rows])


def _picture(out: Path, name: str, pictures: set[str], title: str) -> list[str]:
    return [f"![{title}]({out.name}/figures/{name}.png)"] if name in pictures else []


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *lines])
