"""`marco model`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from marco.cli.common import RunOptions, console
from marco.cli.settings import parse
from marco.compilation import keep_compiled
from marco.model.report.show import report_figure, report_table
from marco.runs.model_report import run_model_report
from marco.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Model(RunOptions):
    """Report how good the model of a run is: on held-out data, and against the truth where that is known."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""
    seed: int | None = None
    """Which of its seeds; the lowest, if not given."""
    figure: Path | None = None
    """Draw the report into this file."""
    json: bool = False
    """Print one JSON object, and nothing else."""


def main(arguments: list[str]) -> None:
    """Report on the model in the last checkpoint."""
    options = parse(Model, arguments, "marco model")
    keep_compiled()
    run = Run.open(options.run_folder, options.world, options.trust)
    report = run_model_report(run, run.config.seeds[0] if options.seed is None else options.seed)
    if options.figure is not None:
        report_figure(report, options.figure)
    if options.json:
        print(json.dumps(report.as_dict()))
        return
    console.print(report_table(report))
