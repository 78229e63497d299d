"""`marco sweep`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from marco.cli.common import say
from marco.cli.settings import parse
from marco.jobs.engine import start_engine
from marco.jobs.on_ray import LOCAL
from marco.optional import require

PROG = "marco sweep"


@dataclass(frozen=True)
class Sweep:
    """Run every setting of a file in every environment with every seed, or search for the best settings.

    Each run is a folder under OUT/runs that can be resumed; the results are in OUT/table.csv, which `marco
    compare OUT` reads. The same command again goes on: what is done is not repeated, what was interrupted is
    resumed, what failed is tried again. The exit status is 1 if runs failed.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.toml")]
    """What to run: see docs/sweeps.md."""
    out: Path | None = None
    """The folder; sweeps/FILE, if not given."""
    workers: Annotated[int | None, tyro.conf.arg(aliases=["--jobs"])] = None
    """How many runs side by side, each in a process of its own; one for each GPU or, without any, for each
    core, if not given."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="[ADDRESS]")] = None
    """Run on Ray: at an address (`auto` for the cluster that is running), or on this machine, if none is
    given."""
    trust: bool = False
    """Run the code that the file names as environments."""
    dry_run: bool = False
    """Only check the file, and say what would be run."""


def main(arguments: list[str]) -> None:
    """Run what is missing."""
    given = parse(Sweep, _with_address(arguments), PROG)
    from marco.sweeps.file import read_sweep

    file = read_sweep(given.file)
    if file.search:
        require("optuna", "search")
    # Ray forks, which a process that has imported JAX should not: it comes first.
    early = start_engine(given.workers, given.ray) if given.ray and not given.dry_run else None
    import jax

    from marco.sweeps.cells import Maker
    from marco.sweeps.grid import run_grid
    from marco.sweeps.search import run_search

    jax.config.update("jax_platforms", "cpu")  # of this process, which runs nothing: GPUs are for the others
    maker = Maker(file, given.trust)
    out = given.out or Path("sweeps") / given.file.stem
    run = run_search if file.search else run_grid
    try:
        failures = run(maker, out, lambda: early or start_engine(given.workers, None), say, given.dry_run)
    except KeyboardInterrupt:
        say("Stopped. Nothing is lost: the same command goes on.")
        sys.exit(130)
    for failure in failures:
        say(f"Failed: {failure.task.label}: {failure.reason} (see {failure.log})", style="red")
    if failures:
        say(f"{len(failures)} runs failed; the same command tries them again.")
        sys.exit(1)


def _with_address(arguments: list[str]) -> list[str]:
    """`--ray` without an address is this machine."""
    filled = []
    for word, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        filled.append(word)
        if word == "--ray" and following.startswith("-"):
            filled.append(LOCAL)
    return filled
