"""`marco reproduce`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from marco.algorithm.config import PresetName
from marco.cli.common import console
from marco.cli.settings import parse
from marco.compilation import keep_compiled
from marco.data.storage import write_atomically
from marco.jobs.events import Report
from marco.jobs.processes import work
from marco.optional import require
from marco.reproduction.cells import STUDIES, Cell, StudyName, cell_named, cells_of
from marco.reproduction.measure import measure, settings
from marco.reproduction.store import read

PROG = "marco reproduce"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Reproduce:
    """Run the paper's experiments again: what is missing is run, then figures and a page of tables are drawn.

    Finished runs are kept in OUT/cells and not repeated; an interrupted study goes on. Figures are in
    OUT/figures, the page is OUT.md.
    """

    study: Annotated[
        Literal["results", "exploration", "bonus", "visitation", "models", "tabular", "all"],
        tyro.conf.Positional,
    ]
    """Which experiment of the paper."""
    preset: PresetName | None = None
    """Run MARCO with this preset only; both, if not given."""
    seeds: int = 10
    """How many seeds, trained at once."""
    first_seed: int = 0
    """The first of them."""
    out: Path = Path("reproduction")
    """The folder."""
    quick: bool = False
    """Minutes instead of hours: a cell of each kind, with networks and budgets so small that the numbers
    mean nothing."""
    jobs: int = 1
    """How many cells to run side by side, each in a process of its own."""
    run: bool = True
    """Whether to run what is missing; --no-run draws from what there is."""
    draw: bool = True
    """Whether to draw; --no-draw only runs."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CELL ...")] = ()
    """Run only these cells of the study, by name."""


def main(arguments: list[str]) -> None:
    """Run, and draw."""
    given = parse(Reproduce, arguments, PROG)
    for name, least in (("seeds", 1), ("jobs", 1), ("first_seed", 0)):
        if getattr(given, name) < least:
            raise ValueError(
                f"--{name.replace('_', '-')} must be at least {least}, got {getattr(given, name)}."
            )
    if given.draw:
        require("rliable.library", "reproduce")  # before hours of runs
    studies: tuple[StudyName, ...] = STUDIES if given.study == "all" else (given.study,)
    cells = cells_of(studies, given.preset, given.quick)
    if given.only:
        cells = [cell_named(name) for name in given.only]
    if given.run:
        run_missing(given, cells)
    if given.draw:
        from marco.reproduction.page import draw

        page = draw(given.out)
        console.print(f"The page: {page}")


def run_missing(given: Reproduce, cells: list[Cell]) -> None:
    """Run the cells that are not there yet."""
    seeds = tuple(range(given.first_seed, given.first_seed + given.seeds))
    missing = [cell for cell in cells if not _is_done(given, cell, seeds)]
    console.print(f"{len(cells)} cells, {len(missing)} to run.")
    say = _say(time.perf_counter())
    if given.jobs > 1 and len(missing) > 1:
        _side_by_side(given, seeds, missing, say)
    else:
        for cell in missing:
            run_cell((seeds, given.out, given.quick), cell, say)


def _is_done(given: Reproduce, cell: Cell, seeds: tuple[int, ...]) -> bool:
    path = given.out / "cells" / f"{cell.name}.csv"
    if not path.exists():
        return False
    found = read(path)
    if bool(found.facts.get("quick")) != given.quick:
        how = "with" if found.facts.get("quick") else "without"
        raise ValueError(f"{path} was made {how} --quick: choose another --out.")
    if "from" in found.facts:  # by an earlier study, as the page says
        return True
    again = f"delete it and {given.out / 'runs' / cell.name}, or choose another --out"
    if not set(seeds) <= set(found.seeds):
        raise ValueError(f"{path} has the seeds {found.seeds}, and not all that are asked for: {again}.")
    if found.facts.get("settings") != settings(cell, given.quick):
        raise ValueError(f"{path} was measured with other settings than this version has: {again}.")
    return True


def _side_by_side(given: Reproduce, seeds: tuple[int, ...], missing: list[Cell], say: Say) -> None:
    """A process for each cell, so many at a time. One that fails does not stop the others."""
    pending, failed = iter(missing), []
    shared = seeds, given.out, given.quick
    events = work(
        run_cell,
        shared,
        lambda: next(pending, None),
        processes=given.jobs,
        variables={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},  # they share a GPU
        fresh=True,
    )
    for event in events:
        if event is None:
            continue
        if event.kind == "ended":
            log = given.out / "runs" / f"{event.task.name}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(log, event.value.encode())
            failed.append(str(log))
        said = {"report": event.value, "done": f"{event.task.name}: done"}
        say(said.get(event.kind) or f"{event.task.name}: failed")
    if failed:
        raise ValueError(f"{len(failed)} of {len(missing)} cells failed, see {', '.join(failed)}.")


def run_cell(shared: tuple[tuple[int, ...], Path, bool], cell: Cell, report: Report) -> None:
    """In a process of its own."""
    keep_compiled()
    seeds, out, quick = shared
    measure(cell, seeds, out, quick, report)


def _say(begun: float) -> Say:
    def say(line: str) -> None:
        console.print(f"{time.perf_counter() - begun:6.0f} s  {line}")

    return say
