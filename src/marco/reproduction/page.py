"""The page of the reproduction: what the paper claims, what was measured, and a verdict that is computed."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marco.algorithm.config import PresetName
from marco.data.storage import write_atomically
from marco.reproduction import figures
from marco.reproduction.cells import (
    BATCH,
    CELLS_OF,
    CLAIMED,
    DEFAULT_BUDGETS,
    LEAST_SEEDS,
    MATCH,
    RANGE,
    SAME,
    STUDIES,
    THRESHOLDS,
    WORLDS,
    MarcoCell,
    ModelFreeCell,
    StudyName,
    cells_of,
)
from marco.reproduction.figures import Found
from marco.reproduction.statistics import (
    MEASURED,
    Interval,
    difference,
    improvement,
    mean_and_iqm,
    ratio,
    samples_of_mean,
    samples_to,
    stays_from,
)
from marco.reproduction.store import Measured, read

OPTIMUM = {"switch": 20 / 27, "bridge": 20 / 27}
REPRODUCED, NOT, BETTER, NOT_RUN = "reproduced", "**not reproduced**", "better", "not run"
NOT_CLAIMED = "not in the paper"
OPEN, FEW, HOLDS, FAILS = "inconclusive", "too few seeds", "holds", "does not hold"
BASE: dict[PresetName, str] = {
    "paper": "bridge-paper",
    "default": f"bridge-default-{DEFAULT_BUDGETS['bridge'][-1]}",
}


INTRODUCTION = (
    "`marco reproduce all --out docs/reproduction` runs what is missing and writes this page; with "
    "`--no-run` it only writes it. Intervals are 95% bootstrap intervals over seeds."
)
RULES = (
    "Verdicts follow from the numbers by fixed rules. *A factor*: how many times MARCO's samples the "
    f"best model-free learner needs for a mean return that is at most {SAME:.0%} of the range lower; "
    "better if its whole interval is above the paper's factor, reproduced if the estimate is, "
    "inconclusive if only the upper end is. A learner that was cut off before counts only if it gets "
    "there. *Optimal*: reproduced if more than half of the seeds are. *Matches*: reproduced if the "
    f"whole interval of the difference is above minus {MATCH:.0%} of the range, better if it is above "
    "0. *Ablations*: reproduced if the return is lower, with an interval that excludes 0, and not "
    f"more than half of the seeds are optimal. With fewer than {LEAST_SEEDS} seeds there is no "
    "verdict."
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


class Claim(NamedTuple):
    """A claim of the paper beside what was measured."""

    study: StudyName
    claim: str
    paper: str
    preset: str
    measured: str
    verdict: str


def draw(out: Path, studies: Sequence[StudyName]) -> Path:
    """Draw figures and page from the finished cells; the page's path."""
    found: Found = {
        cell.name: (cell, read(path))
        for cell in cells_of(STUDIES)
        if (path := out / "cells" / f"{cell.name}.csv").exists()
    }
    if not found:
        raise ValueError(f"{out} has no finished cells: there is nothing to draw.")
    _draw_figures(found, out / "figures")
    write_atomically(out / "marl-eval.json", json.dumps(marl_eval(found)).encode())
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


def claims(found: Found) -> list[Claim]:
    """Every claim, for both presets."""
    return [
        *(claim for world in WORLDS for claim in _sample_claims(found, world)),
        *(claim for world in WORLDS for claim in _optimal_claims(found, world)),
        *_ablation_claims(found),
        *_coverage_claims(found),
        *_view_claims(found),
    ]


def _ours(found: Found, world: str) -> Iterable[tuple[str, str]]:
    yield "paper", f"{world}-paper"
    yield "default", f"{world}-default-{DEFAULT_BUDGETS[world][-1]}"


def _sample_claims(found: Found, world: str) -> Iterable[Claim]:
    """So many times fewer samples than model-free."""
    few, many = CLAIMED[world]
    claim = f"`{world}`: {many // few} times fewer samples than model-free"
    paper = f"{few:,} against {many:,}"
    expected = [
        cell for cell in CELLS_OF["results"] if isinstance(cell, ModelFreeCell) and cell.world == world
    ]
    free = {cell.name: found[cell.name][1] for cell in expected if cell.name in found}
    cut = {cell.name for cell in expected if cell.cut}
    for preset, name in _ours(found, world):
        if name not in found or not free.keys() - cut:
            yield Claim("results", claim, paper, preset, "", NOT_RUN)
            continue
        measured = found[name][1]
        values, samples = measured.final(), measured.rows[-1].samples
        factors = {
            other: ratio(samples, curve, values, SAME * _range(world)) for other, curve in free.items()
        }
        counted = [other for other in free if other not in cut or np.isfinite(factors[other].estimate)]
        best = min(counted, key=lambda other: (factors[other].estimate, factors[other].low))
        longest = min(_budget(free[other]) / samples for other in free if other not in cut)
        missing = [f"`{cell.name}`" for cell in expected if cell.name not in found]
        more = f"; not run: {', '.join(missing)}" if missing else ""
        shown = f"{_mark(found, name)} {values.mean():.3f} from {samples:,}; "
        shown += _factor(_mark(found, best), factors[best], longest) + more
        verdict = _verdict_of_factor(factors[best], many / few, longest)
        yield Claim("results", claim, paper, preset, shown, _if_enough(verdict, values, free[best].final()))


def _budget(measured: Measured) -> int:
    return max(row.samples for row in measured.rows)


def _range(world: str) -> float:
    low, high = RANGE[world]
    return high - low


def _if_enough(verdict: str, *values: Any) -> str:
    return verdict if min(map(len, values)) >= LEAST_SEEDS else FEW


def _factor(name: str, interval: Interval, longest: float) -> str:
    """A factor; beyond the longest run it is only known to be larger."""
    if not np.isfinite(interval.low):
        return f"no model-free learner gets there with {longest:.0f} times as many"
    told = [f"over {longest:.0f}" if not np.isfinite(value) else f"{value:.1f}" for value in interval]
    return f"the best model-free ({name}) needs {told[0]} times as many ({told[1]} to {told[2]})"


def _verdict_of_factor(interval: Interval, claimed: float, longest: float) -> str:
    estimate, low, high = (min(value, longest) for value in interval)
    if low > claimed:
        return BETTER
    if estimate >= claimed:
        return REPRODUCED
    return OPEN if high >= claimed else NOT


def _optimal_claims(found: Found, world: str) -> Iterable[Claim]:
    """Optimal with few samples; as good as model-free in the end."""
    few, _ = CLAIMED[world]
    for preset, name in _ours(found, world):
        shown, verdict = "", NOT_RUN
        if name in found and world in OPTIMUM:
            values = found[name][1].final()
            optimal = int((values > OPTIMUM[world] - 1e-4).sum())
            samples = found[name][1].rows[-1].samples
            shown = f"{_mark(found, name)}: {optimal} of {len(values)} seeds with {samples:,}"
            verdict = _if_enough(REPRODUCED if 2 * optimal > len(values) else NOT, values)
        if world in OPTIMUM:
            yield Claim(
                "results", f"`{world}`: learns the optimal policy", f"with {few:,}", preset, shown, verdict
            )
    for preset, name in _ours(found, world):
        shown, verdict, other = "", NOT_RUN, f"{world}-free-paper"
        if name in found and other in found:
            ours, theirs = found[name][1].final(), found[other][1].final()
            gap, margin = difference(ours, theirs), MATCH * _range(world)
            shown = f"{_mark(found, name)}: {gap} above {_mark(found, other)}"
            verdict = BETTER if gap.low > 0 else REPRODUCED if gap.low >= -margin else OPEN
            verdict = _if_enough(NOT if gap.high < -margin else verdict, ours, theirs)
        yield Claim("results", f"`{world}`: matches model-free's final return", "yes", preset, shown, verdict)


def _ablation_claims(found: Found) -> Iterable[Claim]:
    ablations: tuple[tuple[StudyName, str, str, str], ...] = (
        ("exploration", "team", "fails without the exploration policy", "does not learn the optimal policy"),
        ("exploration", "random", "fails where chance collects", NOT_CLAIMED),
        ("bonus", "lam-0", "sub-optimal with lambda = 0", "sub-optimal"),
    )
    for study, ablation, claim, paper in ablations:
        for preset, base in BASE.items():
            yield _lower(
                found, study, f"`bridge`: {claim}", paper, preset, base, f"bridge-{preset}-{ablation}"
            )


def _view_claims(found: Found) -> Iterable[Claim]:
    pairs = [(preset, BASE[preset], f"bridge-{preset}") for preset in BASE]
    pairs.append(("default", "delayed-default", "delayed-default"))
    for preset, base, stem in pairs:
        for view in ("joint-observation", "decentralised"):
            claim = f"`{stem.split('-')[0]}`: a {view} model is worse than a centralised one"
            yield _lower(found, "models", claim, "argued, Figure 2", preset, base, f"{stem}-{view}")


def _lower(
    found: Found, study: StudyName, claim: str, paper: str, preset: str, base: str, other: str
) -> Claim:
    """A claim that a change makes the return lower."""
    if base not in found or other not in found:
        return Claim(study, claim, paper, preset, "", NOT_RUN)
    ours, theirs = found[base][1].final(), found[other][1].final()
    gap, optimum = difference(ours, theirs), OPTIMUM.get(found[base][0].world)
    shown = f"{_mark(found, other)} {theirs.mean():.3f}, {_mark(found, base)} {ours.mean():.3f}: {gap} lower"
    lower = gap.low > 0
    if optimum is not None:
        optimal = int((theirs > optimum - 1e-4).sum())
        lower = lower and 2 * optimal <= len(theirs)
        shown += f"; {optimal} of {len(theirs)} optimal"
    holds, fails = (REPRODUCED, NOT) if paper != NOT_CLAIMED else (HOLDS, FAILS)
    return Claim(study, claim, paper, preset, shown, _if_enough(holds if lower else fails, ours, theirs))


def _coverage_claims(found: Found) -> Iterable[Claim]:
    claim, paper = "`bridge`: covers more with the exploration policy", "from 100k model steps on"
    base, other = "bridge-paper", "bridge-paper-team"
    shares = [_coverage(found[name][1]) for name in (base, other) if name in found]
    if len(shares) < 2 or not all(shares):
        yield Claim("visitation", claim, paper, "paper", "", NOT_RUN)
        return
    first = min(shares[0])  # before any exploration
    refits = [samples for samples in sorted(set(shares[0]) & set(shares[1])) if samples > first]
    gaps = {samples: difference(shares[0][samples], shares[1][samples]) for samples in refits}
    shown = "; ".join(f"{samples:,} samples: {gap} more of all pairs" for samples, gap in gaps.items())
    verdict = REPRODUCED if gaps and all(gap.low > 0 for gap in gaps.values()) else NOT
    yield Claim("visitation", claim, paper, "paper", shown, _if_enough(verdict, *shares[0].values()))


def _coverage(measured: Measured) -> dict[int, Any]:
    rows = [row for row in measured.rows if row.pairs is not None]
    return {
        samples: np.array([row.pairs for row in rows if row.samples == samples])
        for samples in sorted({row.samples for row in rows})
    }


def _returns(found: Found) -> str:
    lines = []
    for name, (cell, measured) in found.items():
        values = measured.final()
        mean, iqm = mean_and_iqm(values)
        optimum = OPTIMUM.get(cell.world)
        best = "" if optimum is None else f"{int((values > optimum - 1e-4).sum())} of {len(values)}"
        samples = max(row.samples for row in measured.rows)
        told = [_mark(found, name), cell.title, f"{samples:,}", str(len(values))]
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
        lines.append([_mark(found, name), thresholds, *cells])
    return _markdown(["cell", "thresholds", "first", "second", "third", "fourth"], lines)


def _profiles(found: Found, out: Path, pictures: set[str]) -> list[str]:
    worlds = [world for world in WORLDS if f"{world}-free-tuned" in found]
    lines = []
    for preset in ("paper", "default"):
        have = [(world, dict(_ours(found, world))[preset]) for world in worlds]
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


def _mark(found: Found, name: str) -> str:
    """The name of a cell, marked if it was measured by an earlier study."""
    return f"`{name}{'*' * ('from' in found[name][1].facts)}`"


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


def marl_eval(found: Found) -> dict[str, Any]:
    """The curves in the layout that marl-eval reads: environment, task, algorithm, run, step."""
    tasks: dict[str, Any] = {}
    for name, (cell, measured) in found.items():
        runs = {}
        for seed, rows in measured.curve().items():
            steps: dict[str, Any] = {
                f"step_{index}": {"step_count": row.samples, "return": [row.value]}
                for index, row in enumerate(rows)
            }
            runs[f"seed_{seed}"] = steps | {"absolute_metrics": {"return": [rows[-1].value]}}
        tasks.setdefault(cell.world, {})[name] = runs
    return {"marco": tasks}


def _picture(out: Path, name: str, pictures: set[str], title: str) -> list[str]:
    return [f"![{title}]({out.name}/figures/{name}.png)"] if name in pictures else []


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *lines])
