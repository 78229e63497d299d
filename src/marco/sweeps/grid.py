"""All cells of a file, with all seeds: what is missing is run, and the table is written."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from marco.jobs.engine import Engine
from marco.sweeps.cells import Maker
from marco.sweeps.runs import Failure, SweepFolder, Task, run_tasks

Say = Callable[[str], None]


def run_grid(
    maker: Maker, out: Path, start: Callable[[], Engine], say: Say, dry_run: bool = False
) -> list[Failure]:
    """Run what is missing; the runs that failed."""
    cells, seeds = maker.grid(), maker.file.seeds
    say(f"{len(cells)} cells (settings in environments), {len(seeds)} seeds each.")
    if dry_run:
        for cell in cells:
            say(f"  {cell.name}: {cell.config.method}, {cell.config.algorithm.samples:,} samples a seed")
        return []
    engine = start()
    folder = SweepFolder(out, engine.gpu)
    with folder.held():
        folder.keep_file(maker.file.path)
        tasks = [task for cell in cells for task in folder.missing(cell, seeds)]
        # The first seed of every setting comes first: a table that is half full can be compared already.
        tasks.sort(key=lambda task: seeds.index(next(seed for seed in task.config.seeds if seed in seeds)))
        have = len({row.run for row in folder.write(cells)})
        say(f"{have} runs are done, {len(tasks)} to run, {engine.workers} at a time.")
        pending, board = deque(tasks), Board(folder, len(tasks), say)

        def done(task: Task, failure: Failure | None) -> None:
            board.tell(task, failure)
            folder.write(cells)

        failures = run_tasks(engine, lambda: pending.popleft() if pending else None, done)
        rows = folder.write(cells)
    say(f"{len(rows)} rows in {folder.table}. Compare them: marco compare {out}")
    return failures


class Board:
    """A line for every run that ends."""

    def __init__(self, folder: SweepFolder, total: int | None, say: Say) -> None:
        self._folder, self._total, self._say = folder, total, say
        self._ended, self._begun = 0, perf_counter()

    def tell(self, task: Task, failure: Failure | None) -> None:
        """What came of a run."""
        self._ended += 1
        of = "" if self._total is None else f" of {self._total}"
        since = f"{perf_counter() - self._begun:.0f} s, {self._ended}{of}"
        if failure:
            self._say(f"{since}: {task.label} failed: {failure.reason}")
            return
        returns = ", ".join(f"{row.value:.4g}" for row in self._folder.rows_of(task))
        self._say(f"{since}: {task.label}: return {returns}")
