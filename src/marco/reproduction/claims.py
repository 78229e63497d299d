"""The paper's claims beside what was measured: each has a rule, from which its verdict is computed."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from marco.algorithm.config import PresetName
from marco.reproduction.cells import (
    CELLS_OF,
    CLAIMED,
    DEFAULT_BUDGETS,
    LEAST_SEEDS,
    MATCH,
    RANGE,
    SAME,
    WORLDS,
    ModelFreeCell,
    StudyName,
)
from marco.reproduction.figures import Found
from marco.reproduction.statistics import difference, ratio
from marco.reproduction.store import Measured
from marco.statistics import Interval

OPTIMUM = {"switch": 20 / 27, "bridge": 20 / 27}
REPRODUCED, NOT, BETTER, NOT_RUN = "reproduced", "**not reproduced**", "better", "not run"
NOT_CLAIMED = "not in the paper"
OPEN, FEW, HOLDS, FAILS = "inconclusive", "too few seeds", "holds", "does not hold"
BASE: dict[PresetName, str] = {
    "paper": "bridge-paper",
    "default": f"bridge-default-{DEFAULT_BUDGETS['bridge'][-1]}",
}


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


class Claim(NamedTuple):
    """A claim of the paper beside what was measured."""

    study: StudyName
    claim: str
    paper: str
    preset: str
    measured: str
    verdict: str


def claims(found: Found) -> list[Claim]:
    """Every claim, for both presets."""
    return [
        *(claim for world in WORLDS for claim in _sample_claims(found, world)),
        *(claim for world in WORLDS for claim in _optimal_claims(found, world)),
        *_ablation_claims(found),
        *_coverage_claims(found),
        *_view_claims(found),
    ]


def marco_cells(world: str) -> Iterable[tuple[str, str]]:
    """MARCO's cell for each preset."""
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
    for preset, name in marco_cells(world):
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
        shown = f"{mark(found, name)} {values.mean():.3f} from {samples:,}; "
        shown += _factor(mark(found, best), factors[best], longest) + more
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
    for preset, name in marco_cells(world):
        shown, verdict = "", NOT_RUN
        if name in found and world in OPTIMUM:
            values = found[name][1].final()
            optimal = int((values > OPTIMUM[world] - 1e-4).sum())
            samples = found[name][1].rows[-1].samples
            shown = f"{mark(found, name)}: {optimal} of {len(values)} seeds with {samples:,}"
            verdict = _if_enough(REPRODUCED if 2 * optimal > len(values) else NOT, values)
        if world in OPTIMUM:
            yield Claim(
                "results", f"`{world}`: learns the optimal policy", f"with {few:,}", preset, shown, verdict
            )
    for preset, name in marco_cells(world):
        shown, verdict, other = "", NOT_RUN, f"{world}-free-paper"
        if name in found and other in found:
            ours, theirs = found[name][1].final(), found[other][1].final()
            gap, margin = difference(ours, theirs), MATCH * _range(world)
            shown = f"{mark(found, name)}: {gap} above {mark(found, other)}"
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
    shown = f"{mark(found, other)} {theirs.mean():.3f}, {mark(found, base)} {ours.mean():.3f}: {gap} lower"
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


def mark(found: Found, name: str) -> str:
    """The name of a cell, marked if it was measured by an earlier study."""
    return f"`{name}{'*' * ('from' in found[name][1].facts)}`"
