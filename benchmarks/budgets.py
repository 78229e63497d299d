"""What MARCO reaches on budgets of real samples, all seeds at once, and where the time goes.

    python benchmarks/budgets.py WORLD --samples 1000 2000 5000 [--env name=value ...] [--preset default]
        [--change name=value ...] [--seeds 10] [--first-seed 0] [--name STUDY] [--rehearse]

WORLD is any name that `marco.make` takes; --env gives its settings, --change those of MARCO, with dots in
the name for its parts (team.learning_rate=5e-4). Each budget is a run of its own up to its last model; the
teams of all budgets are then trained at once, each in its own last model. Returns are exact where chance can
be enumerated, else means over 2,000 test episodes, counted apart. Rows go to three tables: `marco.csv` (the
final teams), `marco_progress.csv` (every chunk of real data, and the best team at each tenth of the last
training) and `marco_seconds.csv` (seconds of all seeds together; `compiling` is summed over threads, so that
it can exceed the seconds of a fit). With --rehearse all is compiled and little is learned: it fills JAX's
compilation cache, and no row is written.
"""

import argparse
import time
from ast import literal_eval
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from marco.algorithm.config import MarcoConfig, PresetName
from marco.algorithm.events import Event
from marco.algorithm.loop import Marco, Phase
from marco.algorithm.state import MarcoState
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld, optimum_of
from marco.environments.registry import make
from marco.evaluation import evaluate
from marco.types import Episode
from record import MARCO, MARCO_PROGRESS, MARCO_SECONDS, RESULTS, Results, Row, Table

TEST_EPISODES, TEST_SEED = 2_000, 1_000_000


class JoinedData:
    """The real episodes of all budgets, as those of more seeds."""

    def __init__(self, datasets: list[Dataset]) -> None:
        self._datasets = datasets

    def episodes(self, index: int, samples: int | None = None, since: int = 0) -> Episode:
        """Those of one seed of one budget."""
        which, seed = divmod(index, self._datasets[0].seeds)
        return self._datasets[which].episodes(seed, samples, since)


class Clock:
    """Seconds by phase, and how many of them went into compilation."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = defaultdict(lambda: {"seconds": 0.0, "compiling": 0.0})
        self._compiling, self._lock = 0.0, Lock()
        self._since = (time.perf_counter(), 0.0)
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            with self._lock:
                self._compiling += seconds

    def lap(self, phase: str) -> None:
        """Count the time since the last lap for this phase."""
        now = (time.perf_counter(), self._compiling)
        self.phases[phase]["seconds"] += now[0] - self._since[0]
        self.phases[phase]["compiling"] += now[1] - self._since[1]
        self._since = now

    def rows(self, **facts: Any) -> list[Row]:
        """One for each phase."""
        return [
            {**facts, "phase": phase} | {name: round(value, 2) for name, value in spent.items()}
            for phase, spent in self.phases.items()
        ]


class Collected(NamedTuple):
    """A run up to its last model."""

    samples: int
    marco: Marco
    state: MarcoState
    reward_loss: list[float]


@dataclass(frozen=True)
class Study:
    """Runs of one preset in one environment: the budgets, the seeds, and where rows go."""

    name: str
    world: str
    """The name of the environment and its settings, as they are written in the rows."""
    env: Environment | HostWorld
    preset: PresetName
    budgets: tuple[int, ...]
    seeds: tuple[int, ...]
    changes: dict[str, Any]
    results: Results
    rehearse: bool = False

    def run(self) -> None:
        """Spend every budget, then train and evaluate all teams."""
        if self.rehearse:
            # The same arrays stand for all budgets: only shapes matter.
            collected = [self._collect(self.budgets[-1])] * len(self.budgets)
        else:
            collected = [self._collect(samples) for samples in self.budgets]
        # A reward may look categorical in few samples and continuous in many: such models share no program.
        for _, alike in groupby(collected, lambda one: jax.tree.structure(one.state)):
            self._train_final(list(alike))

    def _collect(self, samples: int) -> Collected:
        clock, config = (
            Clock(),
            MarcoConfig.preset(self.preset, self.env.spec, samples=samples, **self.changes),
        )
        if self.rehearse:
            config = rehearsal(config)
        dataset = Dataset(None, self.env.spec, len(self.seeds))
        marco = Marco(self.env, config, self.seeds, dataset, capacity=max(self.budgets))
        marco.check()
        fitted, state = self._until_last_model(marco, clock, samples)
        self._add(MARCO_SECONDS, clock.rows(study=self.name, samples=samples))
        return Collected(samples, marco, state, fitted.metrics["reward"])

    def _until_last_model(self, marco: Marco, clock: Clock, samples: int) -> tuple[Event, MarcoState]:
        returns: list[float] = []
        for event, state in marco.run():
            clock.lap(event.phase)
            if not event.over:
                continue
            print(f"{event.samples:>7,} of {marco.config.samples:,} {event.phase}", flush=True)
            if event.phase == "collect":
                returns = event.metrics["return"]
            if event.phase == "fit":
                losses = event.metrics["reward"]
                self._add_progress("collect", samples, event.samples, returns, reward_loss=losses)
            if event.phase == "fit" and event.samples == marco.config.samples:
                return event, state
        raise RuntimeError("the run ended before its last model.")

    def _train_final(self, runs: list[Collected]) -> None:
        clock, last = Clock(), runs[-1].marco
        states = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(run.state for run in runs))
        data: Any = JoinedData([run.marco.dataset for run in runs])
        marco = replace(last, seeds=self.seeds * len(runs), dataset=data)
        phase = Phase("final", len(last.config.schedule) - 1, last.config.samples)
        for event, state in marco.do(phase, states):
            clock.lap("final")
            print(f"final {event.progress:.2f} {clock.phases['final']['seconds']:.1f} s", flush=True)
            if not event.metrics or (self.rehearse and not event.over):
                continue
            for index, run in enumerate(runs):
                self._evaluate(run, event, state, first=index * len(self.seeds))
            clock.lap("evaluate")
            shared = runs[0].samples if len(runs) == 1 else None
            self._add(MARCO_SECONDS, clock.rows(study=self.name, samples=shared))

    def _evaluate(self, run: Collected, event: Event, state: MarcoState, first: int) -> None:
        """Evaluate the teams of one budget, which begin at the index `first`."""
        own = range(first, first + len(self.seeds))
        policies = [state.policy(run.marco.config, index) for index in own]
        real = [evaluate(self.env, policy, TEST_EPISODES, TEST_SEED) for policy in policies]
        returns = [estimate.mean for estimate in real]
        imagined, steps = (
            [event.metrics[name][i] for i in own] for name in ("imagined_return", "model_steps")
        )
        spread = f"{np.mean(returns):.4f}, {min(returns):.4f} to {max(returns):.4f}"
        print(f"{run.samples:,}: {spread}", flush=True)
        if not event.over:
            of_seeds = {"model_steps": steps, "imagined": imagined}
            self._add_progress("final", run.samples, run.samples, returns, **of_seeds)
            return
        changes = " ".join(f"{name}={value}" for name, value in self.changes.items())
        facts: Row = {"study": self.name, "world": self.world, "preset": self.preset, "changes": changes}
        facts |= {"samples": run.samples, "optimum": optimum_of(self.env)}
        rows = [
            {**facts, "seed": seed, "return": estimate.mean, "standard_error": estimate.standard_error}
            | {"test_episodes": estimate.episodes, "imagined": value, "reward_loss": loss}
            for seed, estimate, value, loss in zip(self.seeds, real, imagined, run.reward_loss, strict=True)
        ]
        self._add(MARCO, rows)

    def _add_progress(
        self, phase: str, samples: int, real_samples: int, returns: list[float], **by_seed: list[float]
    ) -> None:
        facts = {"study": self.name, "phase": phase, "samples": samples, "real_samples": real_samples}
        rows = [
            {**facts, "seed": seed, "return": returns[i]} | {name: of[i] for name, of in by_seed.items()}
            for i, seed in enumerate(self.seeds)
        ]
        self._add(MARCO_PROGRESS, rows)

    def _add(self, table: Table, rows: list[Row]) -> None:
        if not self.rehearse:
            self.results.add(table, rows)


def rehearsal(config: MarcoConfig) -> MarcoConfig:
    """As little as runs every program once: the number of iterations of a loop is no part of a program."""
    return replace(
        config,
        first_chunk=config.chunk,
        samples=min(config.chunk + 1, config.samples),
        explorer_steps=1,
        team_steps=min(1, config.team_steps),
        final_updates=1,
    )


def setting(text: str) -> tuple[str, Any]:
    """A `name=value` of the command line; a value that is no Python literal is text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"write name=value, got {text!r}.")
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    """Run a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("world")
    parser.add_argument("--env", type=setting, nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--preset", choices=["default", "paper"], default="default")
    parser.add_argument("--samples", type=int, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--change", type=setting, nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", help="of the study; WORLD-PRESET by default")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    Study(
        name=given.name or f"{given.world}-{given.preset}",
        world=" ".join([given.world, *(f"{name}={value}" for name, value in given.env)]),
        env=make(given.world, **dict(given.env)),
        preset=given.preset,
        budgets=tuple(sorted(given.samples)),
        seeds=tuple(range(given.first_seed, given.first_seed + given.seeds)),
        changes=dict(given.change),
        results=Results(given.out),
        rehearse=given.rehearse,
    ).run()


if __name__ == "__main__":
    main()
