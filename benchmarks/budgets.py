"""What MARCO reaches on budgets of real samples, all seeds at once, and where the time goes.

    python benchmarks/budgets.py WORLD --samples 1000 2000 5000 [--env name=value ...] [--preset default]
        [--change name=value ...] [--seeds 10] [--first-seed 0] [--name STUDY] [--rehearse]

WORLD is any name that `marco.make` takes; --env gives its settings, --change those of MARCO, with dots in
the name for its parts (team.learning_rate=5e-4). Each budget is a run of its own. Returns are exact where
chance can be enumerated, else means over 2,000 test episodes, counted apart. Rows go to three tables:
`marco.csv` (the final teams), `marco_progress.csv` (every chunk of real data, and the best team at each tenth
of the last training) and `marco_seconds.csv` (seconds of all seeds together; `compiling` is summed over
threads, so that it can exceed the seconds of a fit). With --rehearse all is compiled and little is learned:
it fills JAX's compilation cache, and no row is written.
"""

import argparse
import time
from ast import literal_eval
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.monitoring
import numpy as np

from marco.algorithm.config import MarcoConfig, PresetName
from marco.algorithm.events import Event
from marco.algorithm.loop import Marco
from marco.algorithm.state import MarcoState
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld, optimum_of
from marco.environments.registry import make
from marco.evaluation import Estimate, evaluate
from record import MARCO, MARCO_PROGRESS, MARCO_SECONDS, RESULTS, Results, Row, Table

TEST_EPISODES, TEST_SEED = 2_000, 1_000_000


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
        """One run after the other. All have room for the largest budget: they share their programs."""
        for samples in self.budgets:
            self._run(samples)

    def _run(self, samples: int) -> None:
        config = MarcoConfig.preset(self.preset, self.env.spec, samples=samples, **self.changes)
        config = rehearsal(config) if self.rehearse else config
        dataset = Dataset(None, self.env.spec, len(self.seeds))
        marco = Marco(self.env, config, self.seeds, dataset, capacity=max(self.budgets))
        marco.check()
        clock, ended = Clock(), dict[str, Event]()
        for event, state in marco.run():
            clock.lap(event.phase)
            if event.phase == "final" and event.metrics and not self.rehearse:
                self._add_final(event, state, config, samples)
                clock.lap("evaluate")
            if event.over:
                print(f"{event.samples:>7,} of {samples:,} {event.phase}", flush=True)
                ended[event.phase] = event
            if event.over and event.phase == "fit":
                found = {"reward_loss": event.metrics["reward"]}
                self._add_progress(
                    "collect", samples, event.samples, ended["collect"].metrics["return"], **found
                )
        self._conclude(marco, state, samples, ended["fit"].metrics["reward"])
        self._add(MARCO_SECONDS, clock.rows(study=self.name, samples=samples))

    def _evaluate(self, state: MarcoState, config: MarcoConfig) -> list[Estimate]:
        """The real value of every seed's team so far."""
        policies = [state.policy(config, index) for index in range(len(self.seeds))]
        found = [evaluate(self.env, policy, TEST_EPISODES, TEST_SEED) for policy in policies]
        returns = [estimate.mean for estimate in found]
        print(f"{np.mean(returns):.4f}, {min(returns):.4f} to {max(returns):.4f}", flush=True)
        return found

    def _add_final(self, event: Event, state: MarcoState, config: MarcoConfig, samples: int) -> None:
        """The best teams so far, on the way through the last training."""
        returns = [estimate.mean for estimate in self._evaluate(state, config)]
        of_seeds = {
            "model_steps": event.metrics["model_steps"],
            "imagined": event.metrics["imagined_return"],
        }
        self._add_progress("final", samples, event.samples, returns, **of_seeds)

    def _conclude(self, marco: Marco, state: MarcoState, samples: int, losses: list[float]) -> None:
        """The teams that were chosen."""
        changes = " ".join(f"{name}={value}" for name, value in self.changes.items())
        facts: Row = {"study": self.name, "world": self.world, "preset": self.preset, "changes": changes}
        facts |= {"samples": samples, "optimum": optimum_of(self.env)}
        trial, imagined = marco.trial(state), state.imagined_return.mean.tolist()
        rows = []
        for index, estimate in enumerate(self._evaluate(state, marco.config)):
            print(f"seed {self.seeds[index]}: {estimate.mean:.4f}")
            for one in trial.candidates(index):
                real = "" if one.real is None else f"; {one.real:.4f} in {one.episodes} real episodes"
                print(f"    {one.name}: imagined {one.imagined:.4f}{real}; expected {one.expected:.4f}")
            rows.append(
                {**facts, "seed": self.seeds[index], "return": estimate.mean}
                | {"standard_error": estimate.standard_error, "test_episodes": estimate.episodes}
                | {"imagined": imagined[index], "reward_loss": losses[index]}
            )
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
        trial_samples=0,
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
