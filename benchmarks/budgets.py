"""What MARCO reaches on budgets of real samples, all seeds at once, and where the time goes.

    python benchmarks/budgets.py WORLD --samples 1000 2000 5000 [--preset default] [--seeds 10]
        [--change name=value ...] [--name NAME] [--rehearse]

Each budget is a run of its own up to its last model; the teams of all budgets are then trained at once, each
in its own last model. Real returns are exact where chance can be enumerated, else means over 2,000 test
episodes, counted apart; `on_the_way` has them for the best team at each tenth of the last training, over as
many test episodes each time, with the model steps taken by then; the file is written anew at each. Seconds
are of all seeds together; `compiling` is what went into compilation, summed over threads, so that of a fit it
can be more than all. With --rehearse little is
learned and all is compiled: it fills JAX's compilation cache.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from marco.algorithm.loop import Event, Marco, MarcoState
from marco.algorithm.presets import marco_settings
from marco.cli.common import parse_settings
from marco.data.dataset import Dataset
from marco.environments.registry import make, optimum
from marco.learners.seeds import policy_of_seed
from marco.runs.model_free import judge
from record import RESULTS, provenance

LITTLE = {"explorer_steps": 1, "final_updates": 1}
"""For a rehearsal: how often a loop goes round is no part of the compiled program."""


class Forgetful:
    """A journal that keeps nothing: the study is short."""

    latest = 0

    def keep(self, step: int, state: Any, event: Any) -> None:
        """Let it go."""

    def note(self, step: int, event: Any) -> None:
        """Let it go."""

    def restore(self, like: Any) -> Any:
        """There is nothing to go back to."""
        raise RuntimeError("nothing was kept.")


class AllData:
    """The real episodes of all budgets, one after the other."""

    def __init__(self, datasets: list[Dataset]) -> None:
        self._datasets = datasets

    def episodes(self, index: int, samples: int | None = None) -> Any:
        """Those of a seed of a budget."""
        which, seed = divmod(index, self._datasets[0].seeds)
        return self._datasets[which].episodes(seed, samples)


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
        """What has passed since the last lap was this phase."""
        now = (time.perf_counter(), self._compiling)
        self.phases[phase]["seconds"] += now[0] - self._since[0]
        self.phases[phase]["compiling"] += now[1] - self._since[1]
        self._since = now

    def told(self) -> dict[str, dict[str, float]]:
        """Rounded."""
        return {name: {k: round(v, 2) for k, v in row.items()} for name, row in self.phases.items()}


def up_to_the_last_model(marco: Marco, clock: Clock) -> tuple[list[Event], MarcoState]:
    """Run until the budget is spent and the model fitted to all of it."""
    events = []
    for event, state in marco.run():
        clock.lap(event.phase)
        if not event.over:
            continue
        events.append(event)
        print(f"{event.samples:>7,} of {marco.settings.samples:,} {event.phase}", flush=True)
        if event.phase == "fit" and event.samples == marco.settings.samples:
            return events, state
    raise RuntimeError("the run ended before its last model.")


def main() -> None:
    """Run, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("world")
    parser.add_argument("--preset", choices=["default", "paper"], default="default")
    parser.add_argument("--samples", type=int, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--change", nargs="*", default=[])
    parser.add_argument("--name", help="of the result's file; WORLD-PRESET by default")
    parser.add_argument("--out", type=Path, default=RESULTS / "marco")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    world, changes = make(arguments.world), parse_settings(tuple(arguments.change), "--change")
    budgets: list[int] = sorted(arguments.samples)
    seeds = tuple(range(arguments.first_seed, arguments.first_seed + arguments.seeds))
    facts = provenance() | {"world": arguments.world, "preset": arguments.preset, "changes": changes}
    facts |= {"seeds": seeds, "optimum": optimum(world)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.name or f'{arguments.world}-{arguments.preset}'}.json"
    for rows, last in study(world, arguments.preset, budgets, seeds, changes, arguments.rehearse):
        if not arguments.rehearse:
            path.write_text(json.dumps(facts | {"budgets": rows, "finish": last}, indent=1) + "\n")


def study(
    world: Any, preset: Any, budgets: list[int], seeds: tuple[int, ...], changes: Any, rehearse: bool
) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """A row per budget; and how long training and judging all teams took: so far, then in the end."""
    rows, states, datasets = [], [], []
    for samples in budgets[-1:] if rehearse else budgets:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            settings = marco_settings(preset, world.spec, samples, **changes)
            if rehearse:
                few = {"first": settings.chunk, "samples": settings.chunk + 1}
                settings = replace(settings, **LITTLE, **few, team_steps=min(1, settings.team_steps))
            dataset = Dataset(Path(folder), world.spec, len(seeds))
            marco = Marco(world, settings, seeds, dataset, Forgetful(), capacity=max(budgets))
            events, state = up_to_the_last_model(marco, clock)
        states.append(state)
        datasets.append(dataset)
        told = [event._asdict() for event in events]
        rows.append({"samples": samples, "phases": told, "seconds": clock.told()})
    clock = Clock()
    # In a rehearsal the same arrays stand for all budgets: shapes are what matters.
    joined = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves), *(states * len(budgets) if rehearse else states)
    )
    data: Any = AllData(datasets * len(budgets) if rehearse else datasets)
    marco = replace(marco, seeds=seeds * len(budgets), dataset=data)
    finishing = marco.finish(len(settings.schedule) - 1, budgets[-1], joined)
    for event, state in finishing:
        clock.lap("finish")
        print(f"finish {event.share:.2f} {clock.phases['finish']['seconds']:.1f} s", flush=True)
        if not event.numbers or (rehearse and not event.over):
            continue
        for index, row in enumerate(rows):
            mine = slice(index * len(seeds), (index + 1) * len(seeds))
            teams = jax.tree.map(lambda leaf, mine=mine: leaf[mine], state.team)
            worth: dict[str, Any] = {"imagined": event.numbers["imagined_return"][mine]}
            real = real_returns(world, settings.team, teams, len(seeds))
            returns = [estimate["mean"] for estimate in real]
            spread = f"{np.mean(returns):.4f}, {min(returns):.4f} to {max(returns):.4f}"
            print(f"{row['samples']:,}: {spread}", flush=True)
            if event.over:
                row |= worth | {"real": real}
            else:
                steps = event.numbers["model_steps"][mine]
                row.setdefault("on_the_way", []).append(worth | {"real": returns, "model_steps": steps})
        clock.lap("judge")
        yield rows, {"seconds": clock.told()}


def real_returns(world: Any, learner: Any, teams: Any, seeds: int) -> list[dict[str, float]]:
    """What the teams are worth in the true world."""
    policies = [policy_of_seed(learner, teams, index) for index in range(seeds)]
    return [judge(jax.random.key(1_000_000), world, policy, 2_000)._asdict() for policy in policies]


if __name__ == "__main__":
    main()
