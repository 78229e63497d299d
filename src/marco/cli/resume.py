"""`marco resume`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from marco.cli.common import RunOptions
from marco.cli.follow import follow
from marco.cli.settings import parse
from marco.cli.workers import WorkerOptions, with_address, workers_of
from marco.compilation import keep_compiled
from marco.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Resume(RunOptions, WorkerOptions):
    """Go on with a run of MARCO that was stopped, however it was stopped."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""


def main(arguments: list[str]) -> None:
    """Go on to the end."""
    options = parse(Resume, with_address(arguments), "marco resume")
    run = Run.open(options.run_folder, options.world, options.trust)
    workers = workers_of(options, run.config.workers, options.trust)
    run = replace(run, config=replace(run.config, workers=workers))
    if run.config.method != "marco":
        raise ValueError(f"{run.folder} is no run of MARCO: only these can be resumed.")
    keep_compiled()
    follow(run)
