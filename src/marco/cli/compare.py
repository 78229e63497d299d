"""`marco compare`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from marco.cli.common import cell, console, say
from marco.cli.settings import parse
from marco.data.storage import write_atomically
from marco.runs.marl_eval import Curve, marl_eval
from marco.statistics import iqm, mean
from marco.sweeps.compare import Group, groups_of, improvements, over_worlds, read_rows, thresholds


@dataclass(frozen=True)
class Compare:
    """Compare runs: the folders of runs and sweeps, or their tables, here or at a URL (s3://, gs://).

    For each environment and setting the mean return and the interquartile mean, with 95% intervals (seeds are
    drawn again, stratified by environment); the samples by which thresholds are reached; and the probability
    that one setting is better than another. Nothing is run.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN|TABLE ...")]
    """Folders of runs, folders of sweeps, or tables (.csv)."""
    figure: Path | None = None
    """Draw return against real samples into this file."""
    threshold: Annotated[tuple[float, ...], tyro.conf.arg(metavar="RETURN ...")] = ()
    """Returns to be reached; 50%, 90% and 95% of the optimum where it is known, if not given."""
    baseline: str | None = None
    """The setting that the others are compared with, as the table calls it; each with each, if not given."""
    json: Path | None = None
    """Write the curves into this file as marl-eval reads them."""


def main(arguments: list[str]) -> None:
    """Print the tables."""
    given = parse(Compare, arguments, "marco compare")
    if not given.runs:
        raise ValueError("name what is compared: folders of runs or sweeps, or tables.")
    groups = groups_of(read_rows(given.runs))
    better = improvements(groups, given.baseline)
    _show_returns(groups)
    _show_over_worlds(groups)
    _show_thresholds(groups, given.threshold)
    if better:
        table = Table("setting", "against", "probability of improvement", "environments")
        for one, other, interval, worlds in better:
            table.add_row(escape(one), escape(other), str(interval), str(worlds))
        console.print(table)
    if given.figure:
        from marco.sweeps.figure import draw

        draw(groups, given.figure)
        say(f"Figure: {given.figure}")
    if given.json:
        write_atomically(given.json, (json.dumps(marl_eval(_curves(groups)), indent=1) + "\n").encode())
        say(f"For marl-eval: {given.json}")


def _show_returns(groups: Sequence[Group]) -> None:
    table = Table("world", "setting", "budget", "runs", "mean (95%)", "interquartile mean (95%)", "optimum")
    for group in groups:
        inexact = "" if all(row.exact for row in group.rows) else " *"
        named = [escape(group.world), escape(group.setting), f"{group.budget:,}", str(len(group.rows))]
        if len(group.rows) == 1:  # no interval from one run
            table.add_row(*named, cell(group.rows[0].value) + inexact, "", cell(group.optimum))
            continue
        middle, robust = mean([group.values]), iqm([group.values])
        table.add_row(*named, str(middle) + inexact, str(robust), cell(group.optimum))
    console.print(table)
    if any(not row.exact for group in groups for row in group.rows):
        say("* Returns by test episodes, not exact; their own error is part of the spread between seeds.")


def _show_over_worlds(groups: Sequence[Group]) -> None:
    if lines := over_worlds(groups):
        table = Table("setting", "runs", "share of the optimum, mean", "interquartile mean")
        for setting, middle, robust, runs in lines:
            table.add_row(escape(setting), str(runs), str(middle), str(robust))
        console.print(table)


def _show_thresholds(groups: Sequence[Group], levels: Sequence[float]) -> None:
    if lines := thresholds(groups, levels):
        table = Table("world", "setting", "return", "samples until the mean is there")
        for world, setting, level, interval in lines:
            table.add_row(escape(world), escape(setting), f"{level:.4g}", str(interval))
        console.print(table)
    elif levels:
        say("No setting has several budgets, or evaluations on the way: there is no curve to read it from.")


def _curves(groups: Sequence[Group]) -> list[Curve]:
    """Of each seed its evaluations on the way, or its budgets."""
    found: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for group in sorted(groups, key=lambda one: one.budget):
        for row in group.rows:
            points = list(row.curve) or [(row.samples, row.value)]
            found.setdefault((group.world, group.setting, row.seed), []).extend(points)
    return [Curve(*key, points) for key, points in found.items()]
