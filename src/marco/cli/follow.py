"""A run on the command line: progress, Ctrl-C, and the table and figure at the end."""

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from rich.table import Table

from marco.algorithm.model_free import ModelFreeConfig
from marco.algorithm.trial import Candidate
from marco.cli.common import cell, console, say
from marco.runs.checkpoint import read_metrics
from marco.runs.figures import run_figure
from marco.runs.interrupt import stopping
from marco.runs.progress import Progress
from marco.runs.run import Run


def follow(run: Run) -> None:
    """Run to the end with its progress shown; then show the result."""
    kept = f"Nothing is lost: {run.command('resume')}"
    if run.config.method != "marco":
        kept = f"The team of the last evaluation is in {run.folder}; a model-free run cannot be resumed."
    before = [(row["phase"], row["seconds"]) for row in read_metrics(run.folder)]
    progress = Progress(console, run.phases, run.config.algorithm.samples, before)
    with stopping(kept) as stop, progress.live(), closing(run.follow()) as events:
        for event in events:
            progress.show(event)
            if stop.asked and event.phase != "done":
                break
    if event.phase != "done":
        say(f"Stopped. {kept}")
        sys.exit(130)
    show_result(run)


def show_result(run: Run) -> None:
    """The table at the end, and the figure."""
    result, imagined = run.result, run.result["imagined"]
    exact = not any(row["episodes"] for row in result["real"])
    columns = ["seed", "real samples", "exact return" if exact else "return (95%)", "optimum"]
    if imagined is not None:
        columns.insert(2, "imagined return")
    table = Table(*columns)
    for index, row in enumerate(result["real"]):
        margin = "" if exact else f" ± {1.96 * row['standard_error']:.4f}"
        cells = [str(row["seed"]), f"{result['samples'][index]:,}", cell(row["mean"]) + margin]
        if imagined is not None:
            cells.insert(2, _imagined(result, index))
        table.add_row(*cells, cell(result["optimum"]))
    console.print(table)
    for line in _choices(result):
        console.print(line)
    for warning in result.get("warnings", ()):
        say(f"Warning: {warning}", style="yellow")
    if result["logged"]:
        console.print(f"Of the real samples {result['logged']:,} were logged before this run.")
    if (broken := result["broken_off"])["episodes"]:
        console.print(
            f"{broken['episodes']:,} of the real episodes broke off, with {broken['steps']:,} of the real "
            "samples; what was seen of them was learned from."
        )
    if (again := result.get("played_again", {"episodes": 0}))["episodes"]:
        console.print(
            f"{again['episodes']:,} episodes were played again, since their simulators were lost: "
            f"{again['steps']:,} real steps beside the samples, kept and not learned from."
        )
    for line in _whole_updates(run, max(result["samples"])):
        console.print(line)
    if tests := sum(row["steps"] for row in result["real"]) + _tested(run):
        console.print(f"{tests:,} more real steps were taken to evaluate the teams, and taught them nothing.")
    say(f"Figure: {run_figure(run)}")
    say(f"Watch the team: {run.command('play')}")
    say(f"The team is in {run.folder}: {run.command('evaluate')}")


def _imagined(result: dict[str, Any], index: int) -> str:
    """The imagined return of a team, and from where to where the members of the model put it."""
    mean, ranges = cell(result["imagined"][index]), result.get("imagined_range")
    return mean if ranges is None else f"{mean} ({cell(ranges[index][0])} to {cell(ranges[index][1])})"


def _choices(result: dict[str, Any]) -> Iterator[str]:
    """Which team was chosen for each seed, and what it is expected to earn."""
    for row, own in zip(result["real"], result.get("candidates", ()), strict=False):
        teams = [Candidate(**one) for one in own]
        low, high = teams[0].interval
        played = [f"{one.name} {cell(one.real)} ({one.episodes})" for one in teams if one.episodes]
        trial = f" In their trial (episodes): {', '.join(played)}." if played else ""
        yield (
            f"Seed {row['seed']}: {teams[0].name} of {len(teams)} candidates; expect {cell(low)} to "
            f"{cell(high)} for real.{trial}"
        )


def _whole_updates(run: Run, samples: int) -> Iterator[str]:
    """Why a model-free run ends below its budget."""
    algorithm = run.config.algorithm
    if isinstance(algorithm, ModelFreeConfig) and samples < algorithm.samples:
        yield (
            f"{algorithm.samples - samples:,} samples of the budget were left, too few for an update, which "
            f"takes {algorithm.learner.episodes_per_update} episodes of up to {run.env.spec.horizon} steps."
        )


def _tested(run: Run) -> int:
    """The real steps of a model-free run's evaluations on the way."""
    return sum(sum(row["metrics"].get("test_steps", [])) for row in read_metrics(run.folder))
