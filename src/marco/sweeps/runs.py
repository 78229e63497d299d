"""The folder of a sweep: which runs it has, which are missing, and how one is run.

OUT/sweep.toml                  the file, as it was last given
OUT/table.csv                   a row per finished run and seed
OUT/runs/CELL/seed-S/           a run; seeds-A-to-B where several seeds share one
OUT/runs/CELL/seed-S.log        why a run failed, until it is done
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from marco.compilation import keep_compiled
from marco.data.storage import write_atomically
from marco.jobs.engine import Engine
from marco.jobs.events import Report
from marco.runs.checkpoint import alone
from marco.runs.config import RunConfig, read_config
from marco.runs.run import Run
from marco.sweeps.cells import Cell
from marco.sweeps.table import NAME, Row, is_done, rows_of_run, write_table

PATIENCE = 60.0
"""Seconds that a run waits for its folder: the process of a sweep that was killed may be ending yet."""


class Task(NamedTuple):
    """A run that is to be made, or gone on with."""

    cell: Cell
    folder: Path
    config: RunConfig

    @property
    def label(self) -> str:
        """How it is called."""
        return f"{self.folder.parent.name}/{self.folder.name}"


@dataclass(frozen=True)
class Failure:
    """A run that came to no end."""

    task: Task
    reason: str
    log: Path


class SweepFolder:
    """The runs under a folder."""

    def __init__(self, out: Path, together: bool) -> None:
        self.out, self._together = out.resolve(), together
        self._configs: dict[Path, RunConfig] = {}
        self._rows: dict[Path, list[Row]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep a second sweep out of the folder."""
        self.out.mkdir(parents=True, exist_ok=True)
        with alone(self.out):
            yield

    def missing(self, cell: Cell, seeds: Sequence[int]) -> list[Task]:
        """The runs of a cell that are not done; those that were begun keep the seeds they have."""
        tasks: list[Task] = []
        have: set[int] = set()
        for folder, config in self._found(cell):
            have.update(config.seeds)
            if set(config.seeds) & set(seeds) and not self._done(cell, folder):
                tasks.append(Task(cell, folder, config))
        left = [seed for seed in seeds if seed not in have]
        together = self._together and cell.vectorised and left
        groups = [left] if together else [[seed] for seed in left]
        place = self._place(cell)
        return tasks + [Task(cell, place / _name(own), cell.of_seeds(own)) for own in groups]

    def rows(self, cells: Sequence[Cell]) -> list[Row]:
        """The rows of all finished runs."""
        return [
            row
            for cell in cells
            for folder, _ in self._found(cell)
            if self._done(cell, folder)
            for row in self._rows[folder]
        ]

    def rows_of(self, task: Task) -> list[Row]:
        """The rows of a run that has ended."""
        self._found(task.cell)
        return self._rows[task.folder] if self._done(task.cell, task.folder) else []

    @property
    def table(self) -> Path:
        """Where the table is."""
        return self.out / NAME

    def write(self, cells: Sequence[Cell]) -> list[Row]:
        """Write the table."""
        rows = self.rows(cells)
        write_table(self.table, rows)
        return rows

    def keep_file(self, file: Path) -> None:
        """A copy of the file beside what came of it."""
        write_atomically(self.out / "sweep.toml", file.read_bytes())

    def _place(self, cell: Cell) -> Path:
        return self.out / "runs" / cell.name

    def _found(self, cell: Cell) -> list[tuple[Path, RunConfig]]:
        """The runs of a cell that were begun; with other settings they are refused."""
        for folder in sorted(self._place(cell).glob("seed*/")):
            if folder not in self._configs and (folder / "config.json").is_file():
                config = cell.of_seeds(read_config(folder).seeds)
                Run(folder, config).check_same()
                self._configs[folder] = config
        place = self._place(cell)
        return [(folder, config) for folder, config in self._configs.items() if folder.parent == place]

    def _done(self, cell: Cell, folder: Path) -> bool:
        if folder not in self._rows and is_done(folder):
            name = str(folder.relative_to(self.out))
            self._rows[folder] = rows_of_run(folder, cell.varied, name)
        return folder in self._rows


def run_tasks(
    engine: Engine, next_task: Callable[[], Task | None], done: Callable[[Task, Failure | None], None]
) -> list[Failure]:
    """Run tasks until none is left, and tell of each that ends; those that fail stop no other."""
    failures = []
    for event in engine.work(run_one, None, next_task):
        if event is None or event.kind == "report":
            continue
        failure = None
        if event.kind == "ended" or not is_done(event.task.folder):
            failure = _failed(event.task, str(event.value))
            failures.append(failure)
        done(event.task, failure)
    return failures


def run_one(shared: Any, task: Task, report: Report) -> None:
    """In a process of its own: begin a run or go on with it, to its end."""
    keep_compiled()
    folder, config = task.folder, task.config
    run = Run(folder, config, trusted=True)  # whoever began the sweep has said what may be run
    _clear(folder, config)
    if (folder / "config.json").exists():
        run.check_same()
    else:
        run.create()
    _wait_for(folder)
    for _ in run.follow():
        pass
    with suppress(FileNotFoundError):
        folder.with_name(f"{folder.name}.log").unlink()


def _clear(folder: Path, config: RunConfig) -> None:
    """Remove what cannot be gone on with: a folder that never became a run, a model-free run cut short."""
    if not folder.exists():
        return
    half_made = not (folder / "config.json").exists() and not any((folder / "policy").glob("*"))
    if half_made and not (folder / "data").exists():
        shutil.rmtree(folder)
    elif config.method == "model-free" and not is_done(folder):
        Run(folder, config).check_same()
        _wait_for(folder)
        shutil.rmtree(folder)


def _wait_for(folder: Path) -> None:
    """Until nobody else holds the folder; who holds it for long is refused by the run itself."""
    from filelock import FileLock, Timeout

    with suppress(Timeout), FileLock(folder / "lock", timeout=PATIENCE):
        pass


def _failed(task: Task, reason: str) -> Failure:
    log = task.folder.with_name(f"{task.folder.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(log, reason.encode())
    lines = reason.strip().splitlines() or ["no reason given"]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit)\b", line)]
    return Failure(task, (named or lines)[-1], log)


def _name(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed-{seeds[0]}"
    whole = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds-{seeds[0]}-to-{seeds[-1]}" if whole else "seeds-" + "-".join(map(str, seeds))
