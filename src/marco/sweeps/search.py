"""Settings that Optuna proposes, trial by trial; each trial is a cell in every environment, with all seeds.

Optuna keeps its trials in OUT/search.log, so that a search that was killed goes on. What trial k proposes
depends on the seed of the search and on k alone. With successive halving a trial runs seed after seed and,
after 1, 2, 4, ... seeds, ends early if it is not among the better half (ASHA; Li et al., 2018): poor settings
cost one seed, and no setting is judged by less than whole runs.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from marco.jobs.engine import Engine
from marco.optional import require
from marco.sweeps.cells import Cell, Maker, slug
from marco.sweeps.file import Range, Search, Settings
from marco.sweeps.grid import Board, Say
from marco.sweeps.runs import Failure, SweepFolder, Task, run_tasks

LOG = "search.log"


def run_search(
    maker: Maker, out: Path, start: Callable[[], Engine], say: Say, dry_run: bool = False
) -> list[Failure]:
    """Run the trials that are missing, and say which settings were best; the runs that failed."""
    search = maker.file.search
    assert search is not None
    for name, one in search.settings.items():  # both ends and every choice, before anything is run
        for value in (one.low, one.high) if isinstance(one, Range) else one:
            _cells(maker, 0, {name: value})
    runs = len(maker.file.worlds) * len(maker.file.seeds)
    say(f"{search.trials} trials of at most {runs} runs each, over {', '.join(search.settings)}.")
    if dry_run:
        return []
    engine = start()
    folder = SweepFolder(out, engine.gpu)
    with folder.held():
        folder.keep_file(maker.file.path)
        course = Course(maker, folder, say)
        course.resume()
        failures = run_tasks(engine, course.next_task, course.ended)
        course.finish()
    _conclude(course, out, say)
    return failures


class Trial:
    """A setting that was proposed, and how far its runs are."""

    def __init__(self, trial: Any, cells: list[Cell], waves: list[list[Task]]) -> None:
        self.trial, self.cells = trial, cells
        self.waves = waves
        """The runs of the seeds that are left; the next wave begins when the one before has ended."""
        self.under_way: set[Path] = set()
        self.seeds = 0
        self.over = False


class Course:
    """A search under way."""

    def __init__(self, maker: Maker, folder: SweepFolder, say: Say) -> None:
        assert maker.file.search is not None
        self._maker, self._folder, self.search = maker, folder, maker.file.search
        self._optuna = require("optuna", "search")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self.study = _study(self._optuna, folder.out / LOG, self.search)
        self.trials: list[Trial] = []
        self._ready: list[Task] = []
        self._board = Board(folder, None, say)

    def resume(self) -> None:
        """Take up the trials of an earlier start: those that were running go on, the others have rows."""
        running = self._optuna.trial.TrialState.RUNNING
        for frozen in self.study.get_trials(deepcopy=False):
            if frozen.state == running:
                self._advance(self._add(self._optuna.trial.Trial(self.study, frozen._trial_id)))
            else:
                self._add(frozen).over = True

    def next_task(self) -> Task | None:
        """A run: of a trial under way or, if none waits, of a new one."""
        while not self._ready and len(self.trials) < self.search.trials:
            number = len(self.trials)
            self.study.sampler = self._optuna.samplers.RandomSampler(seed=_seed(self.search.seed, number))
            trial = self.study.ask(_distributions(self._optuna, self.search))
            self._advance(self._add(trial))
        return self._ready.pop(0) if self._ready else None

    def ended(self, task: Task, failure: Failure | None) -> None:
        """Go on with the trial of a run that has ended."""
        self._board.tell(task, failure)
        trial = next(one for one in self.trials if task.folder in one.under_way)
        trial.under_way.remove(task.folder)
        if failure:
            self._stop(trial, self._optuna.trial.TrialState.FAIL, None)
        elif not trial.under_way:
            self._advance(trial)
        self._folder.write(self.cells)

    def finish(self) -> None:
        """Write the table at the end."""
        self._folder.write(self.cells)

    @property
    def cells(self) -> list[Cell]:
        """Those of all trials."""
        return [cell for trial in self.trials for cell in trial.cells]

    def value(self, trial: Trial) -> float:
        """The mean over all runs of a trial so far, each environment in its scale."""
        found = []
        for world, cell in zip(self._maker.file.worlds, trial.cells, strict=True):
            low, high = self.search.scale.get(world.name, (0.0, 1.0))
            for row in self._folder.rows([cell]):
                value = row.imagined if self.search.objective == "imagined" else row.value
                assert value is not None  # a search for it in runs without a model was refused
                found.append((value - low) / (high - low))
        return float(np.mean(found))

    def _add(self, trial: Any) -> Trial:
        cells = _cells(self._maker, trial.number, _decoded(self.search, trial.params))
        seeds = self._maker.file.seeds
        waves = [list(seeds)] if self.search.method == "random" else [[seed] for seed in seeds]
        tasks = [[task for cell in cells for task in self._folder.missing(cell, wave)] for wave in waves]
        self.trials.append(Trial(trial, cells, tasks))
        return self.trials[-1]

    def _advance(self, trial: Trial) -> None:
        """Begin the next wave of a trial; those whose runs are there already are judged at once."""
        while not trial.over and not trial.under_way:
            if trial.seeds and self._is_poor(trial):
                return
            if not trial.waves:
                self._stop(trial, self._optuna.trial.TrialState.COMPLETE, self.value(trial))
                return
            wave = trial.waves.pop(0)
            trial.seeds += 1
            trial.under_way = {task.folder for task in wave}
            self._ready += wave

    def _is_poor(self, trial: Trial) -> bool:
        """Tell Optuna how good a trial is after so many seeds; end it if Optuna says so."""
        if self.search.method == "random" or not trial.waves:
            return False
        trial.trial.report(self.value(trial), step=trial.seeds)
        if not trial.trial.should_prune():
            return False
        self._stop(trial, self._optuna.trial.TrialState.PRUNED, None)
        return True

    def _stop(self, trial: Trial, state: Any, value: float | None) -> None:
        if not trial.over:
            self.study.tell(trial.trial.number, value, state=state)
        trial.over, trial.waves = True, []
        waiting = {task.folder for task in self._ready}
        self._ready = [task for task in self._ready if task.folder not in trial.under_way]
        trial.under_way -= waiting


def _study(optuna: Any, log: Path, search: Search) -> Any:
    backend = optuna.storages.journal.JournalFileBackend(str(log))
    pruner = optuna.pruners.NopPruner()
    if search.method == "halving":
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    return optuna.create_study(
        study_name="search",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.RandomSampler(),
        pruner=pruner,
        direction="maximize",
        load_if_exists=True,
    )


def _distributions(optuna: Any, search: Search) -> dict[str, Any]:
    found = optuna.distributions

    def of(one: Range | tuple[Any, ...]) -> Any:
        if not isinstance(one, Range):
            return found.CategoricalDistribution(list(map(_encoded, one)))
        whole = isinstance(one.low, int) and isinstance(one.high, int)
        kind = found.IntDistribution if whole else found.FloatDistribution
        return kind(one.low, one.high, log=one.log)

    return {name: of(one) for name, one in search.settings.items()}


def _cells(maker: Maker, number: int, chosen: Settings) -> list[Cell]:
    """The cells of a trial, one in each environment."""
    (variant, settings), *_ = [*maker.file.variants.items(), ("", {})]
    cells = [
        maker.cell(world, variant, settings, chosen, slug(f"trial-{number}-{world.name}"))
        for world in maker.file.worlds
    ]
    assert maker.file.search is not None
    if maker.file.search.objective == "imagined" and any(one.config.method != "marco" for one in cells):
        raise ValueError(f'{maker.file.path}: objective = "imagined" needs a model, method = "marco".')
    return [replace(cell, varied={"trial": number} | cell.varied) for cell in cells]


def _encoded(value: Any) -> Any:
    """A choice as Optuna keeps it: of tuples the text."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _decoded(search: Search, params: Settings) -> Settings:
    """The settings that a trial has proposed."""
    found = {}
    for name, value in params.items():
        one = search.settings.get(name, ())
        choices = () if isinstance(one, Range) else one
        found[name] = {_encoded(choice): choice for choice in choices}.get(value, value)
    return found


def _seed(search: int, number: int) -> int:
    return int(np.random.SeedSequence([search, number]).generate_state(1)[0])


def _conclude(course: Course, out: Path, say: Say) -> None:
    ended = course.study.get_trials(deepcopy=False)
    complete = [one for one in ended if one.value is not None]
    spent = sum(row.samples for row in course._folder.rows(course.cells))
    say(f"{len(ended)} trials, {len(complete)} with all seeds; {spent:,} real samples in all of their runs.")
    if complete:
        best = max(complete, key=lambda one: one.value)
        say(f"The best is trial {best.number}, {best.value:.4g}:\n\n[settings]")
        for name, value in best.params.items():
            say(f'"{name}" = {_toml(value)}')
        say("\nThe best of many was also lucky: confirm it with seeds that were not searched.")
    say(f"All trials: {course._folder.table}. Compare them: marco compare {out}")


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
    return str(value)
