"""The suite: one command, one table, by which the default is judged in many worlds.

    python benchmarks/suite.py [--only WORLD ...] [--cells CELL ...] [--seeds 5] [--first-seed 0]
        [--no-run] [--again] [--csv FILE] [--out FOLDER]
    python benchmarks/suite.py --models [--only WORLD ...] [--samples 1000 3000 10000] [--first-seed 0]

Each world (suite_worlds.py) has a budget B of real samples. Its cells: `random` play; the `ceiling`, that is
the optimum, or what free samples give; the `model-free` learners IQL, VDN, QMIX and MAPPO at B, 10 B and,
where that is a matter of minutes, 100 B; `marco`, the default, at B and B/3. A CELL is one of these words, or
a name such as 'marco B'. What is finished is kept in results/suite.csv, with its command, commit and machine,
and is not run again; so the suite can be run in parts. Every cell has a digest of its settings: one of an
earlier default is marked in the table, and run again with --again. With --no-run the table is printed, no
more. --models compares the model with gradient-boosted trees (model_quality.py; results/suite_models.csv).
"""

import argparse
import csv
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import jax

from learners import free_team, train_free
from marco.algorithm.config import MarcoConfig
from marco.algorithm.loop import Marco
from marco.algorithm.model_free import ModelFree, ModelFreeConfig
from marco.algorithm.precompile import compiled_ahead
from marco.compilation import keep_compiled
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld
from marco.evaluation import Estimate, evaluate
from marco.learners.presets import LearnerName
from marco.policies.base import RandomPolicy
from marco.reproduction.store import digest
from model_quality import measure_models
from record import RESULTS, SUITE, SUITE_MODELS, Results, Row
from suite_worlds import WORLDS, World, tuned
from tables.suite import lines_of, model_table, suite_table

Kind = Literal["random", "ceiling", "model-free", "marco"]
LEARNERS: tuple[LearnerName, ...] = get_args(LearnerName)
SHARES = {"B/3": 1 / 3, "B": 1.0, "10 B": 10.0, "100 B": 100.0}
TEST_EPISODES, TEST_SEED = 2_000, 1_000_000
RANDOM_EPISODES = 20_000
FREE_UPDATES = 3_000


@dataclass(frozen=True)
class Cell:
    """One method in one world on one budget."""

    world: World
    kind: Kind
    learner: LearnerName | None = None
    share: str = ""
    """The budget, in words of SHARES."""

    @property
    def name(self) -> str:
        """As in the table of results."""
        return " ".join(filter(None, [self.learner or self.kind, self.share]))

    @property
    def samples(self) -> int:
        """The budget."""
        return int(self.world.budget * SHARES[self.share]) if self.share else 0

    @property
    def one_seed(self) -> bool:
        """Whether nothing depends on a seed."""
        return self.kind == "random" or (self.kind == "ceiling" and self.world.ceiling is not None)

    def config(self, env: Environment | HostWorld) -> Any:
        """All settings."""
        match self.kind:
            case "marco":
                return MarcoConfig.preset("default", env.spec, samples=self.samples)
            case "model-free":
                assert self.learner is not None
                learner = tuned(self.learner, env.spec, self.samples)
                return ModelFreeConfig(learner, self.samples, self.samples)
            case "ceiling" if self.world.ceiling is None:
                return (*free_team(env.spec), FREE_UPDATES)
            case _:
                return self.kind


def cells_of(world: World) -> list[Cell]:
    """All cells of a world, the cheap ones first."""
    shares = ["B", "10 B"] + ["100 B"] * world.hundredfold
    free = [Cell(world, "model-free", learner, share) for share in shares for learner in LEARNERS]
    return [Cell(world, "random"), Cell(world, "ceiling")] + [
        *[cell for cell in free if cell.share == "B"],
        *(Cell(world, "marco", share=share) for share in ("B", "B/3")),
        *[cell for cell in free if cell.share != "B"],
    ]


class Suite:
    """Cells and where they are kept."""

    def __init__(self, worlds: Sequence[World], results: Results) -> None:
        self.worlds, self.results = {world.name: world for world in worlds}, results
        self._made = cache(lambda name: self.worlds[name].make())

    def settings(self, cell: Cell) -> str:
        """The digest of everything that a cell is made from."""
        env = self._made(cell.world.name)
        return digest((env.spec, cell.config(env)))

    def missing(self, cell: Cell, seeds: Sequence[int], again: bool) -> tuple[int, ...]:
        """The seeds that are not kept; with `again` also those with other settings than today's."""
        wanted = seeds[:1] if cell.one_seed else seeds
        kept = [row for row in self.rows() if (row["world"], row["cell"]) == (cell.world.name, cell.name)]
        if cell.one_seed and kept:
            wanted = [kept[0]["seed"]]
        fine = {row["seed"] for row in kept if not again or row["settings"] == self.settings(cell)}
        return tuple(seed for seed in wanted if seed not in fine)

    def run(self, cell: Cell, seeds: tuple[int, ...]) -> None:
        """Measure and keep: all seeds at once."""
        begin, env = time.perf_counter(), self._made(cell.world.name)
        found = [
            {**row, "world": cell.world.name, "cell": cell.name, "settings": self.settings(cell)}
            for row in measured(cell, env, seeds)
        ]
        seconds = round((time.perf_counter() - begin) / len(found), 1)
        self.results.add(SUITE, [{"samples": cell.samples, **row, "seconds": seconds} for row in found])
        values = ", ".join(f"{row['return']:.4g}" for row in found)
        print(f"{cell.world.name}, {cell.name}: {values} ({seconds:.0f} s a seed)", flush=True)

    def rows(self) -> list[Row]:
        """What is kept of these worlds."""
        return [row for row in self.results.read(SUITE) if row["world"] in self.worlds]

    def stale(self) -> set[tuple[str, str]]:
        """Worlds and cells that were measured with other settings than today's."""
        cells = {(w.name, cell.name): cell for w in self.worlds.values() for cell in cells_of(w)}
        return {
            key
            for row in self.rows()
            if (key := (row["world"], row["cell"])) in cells and self.settings(cells[key]) != row["settings"]
        }

    def run_models(self, world: World, samples: int, seed: int) -> None:
        """Compare the model with the yardstick, unless that is kept."""
        env = self._made(world.name)
        config = MarcoConfig.preset("default", env.spec, samples=samples).model
        settings = digest((env.spec, config))
        key = (world.name, samples, seed, settings)
        names = ("world", "samples", "seed", "settings")
        if any(tuple(row[name] for name in names) == key for row in self.results.read(SUITE_MODELS)):
            return
        rows = [row for part in measure_models(world.name, env, config, samples, seed) for row in part]
        self.results.add(SUITE_MODELS, [{**row, "settings": settings} for row in rows])
        print(f"{world.name}: models of {samples:,} samples, seed {seed}", flush=True)


def measured(cell: Cell, env: Environment | HostWorld, seeds: tuple[int, ...]) -> Iterator[Row]:
    """A row for each seed."""
    config = cell.config(env)
    match cell.kind:
        case "random":
            yield _row(seeds[0], evaluate(env, RandomPolicy(), RANDOM_EPISODES, TEST_SEED), "random")
        case "ceiling" if cell.world.ceiling is not None:
            yield {"seed": seeds[0], "return": cell.world.ceiling(), "learner": "known"}
        case "ceiling":
            assert isinstance(env, Environment)
            learner, restarts, updates = config
            teams = train_free(env, learner, restarts, updates, seeds)
            for seed, policy in zip(seeds, teams.policies, strict=True):
                found = evaluate(env, policy, TEST_EPISODES, TEST_SEED)
                yield _row(seed, found, getattr(learner, "mixer", "mappo"))
        case "model-free":
            yield from _model_free(cell, env, config, seeds)
        case "marco":
            yield from _marco(env, config, seeds)


def _model_free(
    cell: Cell, env: Environment | HostWorld, config: ModelFreeConfig, seeds: tuple[int, ...]
) -> Iterator[Row]:
    *_, (event, _) = ModelFree(env, config, seeds, TEST_EPISODES).run()
    for index, seed in enumerate(seeds):
        of = {name: event.metrics[name][index] for name in ("return", "standard_error", "samples")}
        yield {**of, "seed": seed, "learner": cell.learner}


def _marco(env: Environment | HostWorld, config: MarcoConfig, seeds: tuple[int, ...]) -> Iterator[Row]:
    marco = Marco(env, config, seeds, Dataset(None, env.spec, len(seeds)))
    marco.check()
    with compiled_ahead(marco) as events:
        for event, state in events:  # noqa: B007  (the last state is what was learned)
            if event.over:
                print(f"  {event.samples:>7,} of {config.samples:,} {event.phase}", flush=True)
    trial = marco.trial(state)
    for index, seed in enumerate(seeds):
        found = evaluate(env, state.policy(config, index), TEST_EPISODES, TEST_SEED)
        chosen = trial.candidates(index)[0].name
        yield _row(seed, found, chosen) | {"imagined": float(state.imagined_return.mean[index])}


def _row(seed: int, found: Estimate, learner: str) -> Row:
    return {
        "seed": seed,
        "learner": learner,
        "return": found.mean,
        "standard_error": found.standard_error,
        "test_episodes": found.episodes,
    }


def chosen(suite: Suite, only: Iterable[str] | None, wanted: Iterable[str] | None) -> list[Cell]:
    """The cells by worlds and by names or kinds."""
    worlds = _known(only, suite.worlds, "world")
    cells = [cell for name in worlds for cell in cells_of(suite.worlds[name])]
    names = _known(wanted, dict.fromkeys(x for cell in cells for x in (cell.kind, cell.name)), "cell")
    return [cell for cell in cells if cell.kind in names or cell.name in names]


def _known(given: Iterable[str] | None, names: Iterable[str], what: str) -> list[str]:
    found, known = list(given or names), list(names)
    for name in found:
        if name not in known:
            raise SystemExit(f"suite: there is no {what} {name!r}: there are {', '.join(known)}.")
    return found


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORLD")
    parser.add_argument("--cells", nargs="+", metavar="CELL")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--samples", type=int, nargs="+", default=[1_000, 3_000, 10_000])
    parser.add_argument("--csv", type=Path, help="the table, as CSV")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    keep_compiled()
    suite = Suite(WORLDS, Results(given.out))
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    if given.models:
        for name in () if given.no_run else _known(given.only, suite.worlds, "world"):
            for samples in given.samples:
                suite.run_models(suite.worlds[name], samples, given.first_seed)
        print(model_table(suite.results))
        return
    for cell in chosen(suite, given.only, given.cells) if not given.no_run else ():
        if missing := suite.missing(cell, seeds, given.again):
            suite.run(cell, missing)
            jax.clear_caches()  # no two cells share a program
    print(suite_table(suite.results, WORLDS, suite.stale()))
    if given.csv is not None:
        with given.csv.open("w") as file:
            csv.writer(file).writerows(lines_of(suite.results, WORLDS, suite.stale()))


if __name__ == "__main__":
    main()
