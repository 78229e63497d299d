"""What is said of the rows of runs: means with intervals, samples to a threshold, who is better.

A group is a setting in an environment with a budget; a setting is told by the columns that are not the same
in all rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marco.runs.config import as_json, read_config
from marco.runs.remote import exists, is_url, join, local_run, read_bytes
from marco.statistics import Interval, iqm, mean, probability_of_improvement, samples_to_reach
from marco.sweeps.table import NAME, Row, parse_table, rows_of_run

SHARES = (0.5, 0.9, 0.95)
"""Thresholds, as shares of the optimum, where none are given."""


class Group(NamedTuple):
    """The runs of a setting in an environment with one budget."""

    world: str
    setting: str
    budget: int
    rows: list[Row]

    @property
    def values(self) -> Any:
        """The return of each run."""
        return np.array([row.value for row in self.rows])

    @property
    def optimum(self) -> float | None:
        """The best return there is, if it is known."""
        return self.rows[0].optimum

    @property
    def samples(self) -> float:
        """Real samples, the mean over runs."""
        return float(np.mean([row.samples for row in self.rows]))


def read_rows(locations: Sequence[str]) -> list[Row]:
    """The rows of runs, tables and folders of sweeps; a run that is named twice counts once."""
    rows = [row for location in locations for row in _rows_at(location)]
    if not rows:
        raise ValueError(f"there are no finished runs in {', '.join(locations)}.")
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        found.setdefault((row.run, row.seed), row)
    return list(found.values())


def groups_of(rows: Sequence[Row]) -> list[Group]:
    """The rows by environment, setting and budget."""
    facts = [{"method": row.method, "preset": row.preset, **row.settings} for row in rows]
    names = list(dict.fromkeys(name for one in facts for name in one))
    varied = [name for name in names if len({one[name] for one in facts if name in one}) > 1]
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row, one in zip(rows, facts, strict=True):
        # What an environment has is part of its name already.
        told = [_word(name, one[name]) for name in varied if one.get(name) and not name.startswith("env.")]
        setting = ", ".join(told) or row.method
        found.setdefault((row.world, setting, row.budget), []).append(row)
    groups = [Group(*key, own) for key, own in found.items()]
    for group in groups:
        seeds = [row.seed for row in group.rows]
        if len(set(seeds)) < len(seeds):
            raise ValueError(
                f"{group.world}, {group.setting}: seed {max(seeds, key=seeds.count)} is there more than "
                f"once, in {group.rows[0].run} and elsewhere: compare one of them at a time."
            )
    return groups


def over_worlds(groups: Sequence[Group]) -> list[tuple[str, Interval, Interval, int]]:
    """For each setting the mean and interquartile mean of return / optimum, over all environments.

    Only where there are several, and all of them have an optimum above 0: else returns have no common scale.
    """
    worlds = {group.world for group in groups}
    if len(worlds) < 2 or any(not group.optimum or group.optimum <= 0 for group in groups):
        return []
    lines = []
    for setting in dict.fromkeys(group.setting for group in groups):
        last = [_last(groups, world, setting) for world in sorted(worlds)]
        if all(last):
            strata = [group.values / group.optimum for group in last if group]
            lines.append((setting, mean(strata), iqm(strata), sum(map(len, strata))))
    return lines


def thresholds(
    groups: Sequence[Group], levels: Sequence[float] = ()
) -> list[tuple[str, str, float, Interval]]:
    """The samples by which each setting reaches each level, where it has several budgets or a curve."""
    lines = []
    for world, setting in dict.fromkeys((group.world, group.setting) for group in groups):
        own = [group for group in groups if (group.world, group.setting) == (world, setting)]
        samples, runs = curve(own)
        optimum = own[0].optimum
        wanted = levels or ([share * optimum for share in SHARES] if optimum and optimum > 0 else [])
        if len(samples) > 1:
            lines += [(world, setting, level, samples_to_reach(samples, runs, level)) for level in wanted]
    return lines


def curve(groups: Sequence[Group]) -> tuple[list[float], list[Any]]:
    """Samples, and the returns of all runs there: over budgets or, of one, over the way of its runs."""
    if len(groups) == 1 and (ways := [row.curve for row in groups[0].rows]) and all(ways):
        length = min(map(len, ways))
        points = [[way[index] for way in ways] for index in range(length)]
        samples = [float(np.mean([x for x, _ in at])) for at in points]
        return samples, [np.array([y for _, y in at]) for at in points]
    ordered = sorted(groups, key=lambda group: group.budget)
    return [group.samples for group in ordered], [group.values for group in ordered]


def improvements(
    groups: Sequence[Group], baseline: str | None = None
) -> list[tuple[str, str, Interval, int]]:
    """The probability that a run of one setting is better than one of another, over common environments.

    Each setting with its largest budget; against the baseline alone, if one is given.
    """
    settings = list(dict.fromkeys(group.setting for group in groups))
    if baseline is not None and baseline not in settings:
        raise ValueError(f"--baseline {baseline!r} is none of the settings: {'; '.join(settings)}.")
    pairs = [(one, other) for one, other in combinations(settings, 2)]
    if baseline is not None:
        pairs = [(one, baseline) for one in settings if one != baseline]
    lines = []
    for one, other in pairs:
        worlds = list(dict.fromkeys(group.world for group in groups))
        both = [(_last(groups, world, one), _last(groups, world, other)) for world in worlds]
        common = [(ours.values, theirs.values) for ours, theirs in both if ours and theirs]
        if common:
            ours, theirs = zip(*common, strict=True)
            lines.append((one, other, probability_of_improvement(ours, theirs), len(common)))
    return lines


def _last(groups: Iterable[Group], world: str, setting: str) -> Group | None:
    own = [group for group in groups if (group.world, group.setting) == (world, setting)]
    return max(own, key=lambda group: group.budget) if own else None


def _rows_at(location: str) -> list[Row]:
    if location.endswith(".csv"):
        return _table(location)
    if exists(join(location, NAME)):
        return _with_curves(_table(join(location, NAME)), location)
    if not is_url(location) and not Path(location).exists():
        raise ValueError(f"there is no {location}: give folders of runs or sweeps, or tables of them.")
    if exists(join(location, "config.json")):
        folder = local_run(location)
        return rows_of_run(folder, _leaves(as_json(read_config(folder).algorithm)), location)
    inside = [] if is_url(location) else sorted(Path(location).glob("seed*/config.json"))
    if not inside:
        raise ValueError(f"{location} is neither a run (config.json) nor a sweep ({NAME}).")
    return [
        row for file in inside if (file.parent / "result.json").exists() for row in _rows_at(str(file.parent))
    ]


def _table(location: str) -> list[Row]:
    try:
        text = read_bytes(location).decode()
    except FileNotFoundError as error:
        raise ValueError(f"there is no {location}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{location} is no table: {error}.") from error
    return [replace(row, run=f"{location}: {row.run}") for row in parse_table(text, location)]


def _with_curves(rows: list[Row], out: str) -> list[Row]:
    """What the table does not have: evaluations of model-free runs on the way, where the runs are here."""
    if is_url(out):
        return rows
    ways: dict[tuple[str, int], Any] = {}
    for name in {row.run for row in rows if row.method == "model-free"}:
        folder = Path(out) / name.rpartition(": ")[2]
        if (folder / "result.json").is_file() and not folder.is_symlink():
            ways |= {(name, row.seed): row.curve for row in rows_of_run(folder)}
    return [replace(row, curve=ways.get((row.run, row.seed), ())) for row in rows]


def _word(name: str, value: str) -> str:
    return value if name in ("method", "preset", "variant") else f"{name}={value}"


def _leaves(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """All settings of a run by dotted name, but for those that follow from its budget."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}{name}.")
        elif name in ("candidates", "offline"):
            found[name] = len(value)
        elif prefix or name not in ("samples", "first_chunk", "chunk", "trial_samples", "evaluate_every"):
            found[f"{prefix}{name}"] = value
    return found
