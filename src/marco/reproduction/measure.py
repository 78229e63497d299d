"""Run a cell with all seeds at once, and evaluate its teams in the true environment on the way."""

import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from marco.algorithm.collect import observed_steps
from marco.algorithm.events import Event
from marco.algorithm.loop import Marco, phases
from marco.algorithm.model_free import ModelFree
from marco.algorithm.precompile import compiled_ahead
from marco.algorithm.state import MarcoState
from marco.environments.base import Environment, FiniteEnvironment
from marco.environments.registry import make
from marco.evaluation import evaluate
from marco.model.report.exact import reachable_pairs
from marco.model.uncertainty import ObservedSteps, uncertainty
from marco.model.views import make_view
from marco.policies.base import EpsilonGreedy, Policy
from marco.reproduction.cells import Cell, MarcoCell, ModelFreeCell, TabularCell
from marco.reproduction.store import QUANTILES, Row, digest, read, write
from marco.rollout import rollouts
from marco.runs.checkpoint import alone, read_events
from marco.runs.config import RunConfig, commit, version_of
from marco.runs.run import TEST_SEED, Run
from marco.tabular import load, solve
from marco.tabular.rmax import learn, make_task
from marco.types import Episode

TEST_EPISODES = 1_000
PAIRS = 5_000
"""Pairs (s, a) that a team meets in the true environment, as in the paper."""


def measure(cell: Cell, seeds: tuple[int, ...], out: Path, quick: bool, say: Callable[[str], None]) -> None:
    """Run a cell to its end, or go on with it, and write its rows."""
    begun, before = time.perf_counter(), 0.0
    if isinstance(cell, TabularCell):
        rows = _tabular(cell, seeds, quick, say)
    else:
        env = make(cell.world)
        assert isinstance(env, Environment)
        if isinstance(cell, MarcoCell):
            rows, before = _marco(cell, env, seeds, out / "runs" / cell.name, quick, say)
        else:
            rows = _model_free(cell, env, seeds, quick, say)
    seconds = round(before + time.perf_counter() - begun, 1)
    program = commit() or version_of("marco-marl")
    facts: dict[str, Any] = {"cell": cell.name, "settings": settings(cell, quick), "commit": program}
    facts |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "seconds": seconds}
    write(out / "cells" / f"{cell.name}.csv", facts | ({"quick": True} if quick else {}), rows)


def settings(cell: Cell, quick: bool) -> str:
    """A digest of everything that a cell is made from."""
    if isinstance(cell, TabularCell):
        made: Any = cell
    else:
        spec = make(cell.world).spec
        made = (spec, cell.quick(spec) if quick else cell.config(spec))
    return digest(made)


def _tabular(cell: TabularCell, seeds: tuple[int, ...], quick: bool, say: Callable[[str], None]) -> list[Row]:
    """A row for every plan: the exact value of its team, in shares of the optimum."""
    problem = load(cell.world)
    task, steps = make_task(problem), problem.steps(cell.horizon)
    optimum = solve(problem.dynamics, steps).lower
    rows: list[Row] = []
    for seed in seeds:
        episodes = 20 if quick else cell.episodes
        run = learn(np.random.default_rng(seed), task, steps, cell.how, episodes, optimum)
        ends = np.cumsum([phase.samples for phase in run.phases])
        begins = [0, *map(int, ends[:-1])]
        of_run = [
            Row("train", seed, begin, begin, (optimum - phase.regret) / optimum)
            for begin, phase in zip(begins, run.phases, strict=True)
        ]
        rows += _changes(of_run)
        say(f"{cell.name}: seed {seed}, {run.samples} samples")
    return rows


def _changes(rows: list[Row]) -> list[Row]:
    """Without the rows that say what the row before them says, but for the last."""
    kept = [row for before, row in pairwise(rows) if abs(row.value - before.value) > 1e-9]
    last = rows[-1:] if rows[-1] is not (kept[-1] if kept else rows[0]) else []
    return [rows[0], *kept, *last]


def _model_free(
    cell: ModelFreeCell, env: Environment, seeds: tuple[int, ...], quick: bool, say: Callable[[str], None]
) -> list[Row]:
    config = cell.quick(env.spec) if quick else cell.config(env.spec)
    rows: list[Row] = []
    for event, _ in ModelFree(env, config, seeds, TEST_EPISODES).run():
        found = event.metrics
        say(f"{cell.name}: {event.progress:.0%}, return {np.mean(found['return']):.3f}")
        of_seeds = zip(seeds, found["samples"], found["return"], strict=True)
        rows += [Row("train", seed, samples, samples, value) for seed, samples, value in of_seeds]
    return rows


def _marco(
    cell: MarcoCell,
    env: Environment,
    seeds: tuple[int, ...],
    folder: Path,
    quick: bool,
    say: Callable[[str], None],
) -> tuple[list[Row], float]:
    """The rows, and the seconds of earlier attempts."""
    config = cell.quick(env.spec) if quick else cell.config(env.spec)
    run = Run(folder, RunConfig(cell.world, "marco", config, seeds, TEST_EPISODES, preset=cell.preset), env)
    if (folder / "config.json").exists():
        run.check_same()
    else:
        run.create()
    with alone(folder):
        curve = Curve(cell, env, run.marco(), folder)
        with compiled_ahead(curve.marco) as events:
            for event, state in events:
                curve.add(event, state)
                if event.over or event.phase == "final":
                    say(f"{cell.name}: {event.samples:,} samples, {event.phase} {event.progress:.0%}")
    return curve.rows, curve.seconds_before


class Curve:
    """The rows of a run so far, kept in its folder."""

    def __init__(self, cell: MarcoCell, env: Environment, algorithm: Marco, folder: Path) -> None:
        self.cell, self.env, self.marco, self._folder = cell, env, algorithm, folder
        self._begun = time.perf_counter()
        self.rows, self.seconds_before = self._read()
        self._steps = np.zeros(len(algorithm.seeds), int)
        for row in self.rows:
            self._steps[algorithm.seeds.index(row.seed)] = row.steps
        self._catch_up()

    def add(self, event: Event, state: MarcoState) -> None:
        """Evaluate the teams, where there are new ones."""
        if event.metrics and (event.phase == "final" or (event.phase == "team" and event.over)):
            steps = self._steps + np.asarray(event.metrics["model_steps"], int)
            found = [Row(*row) for row in self._evaluate(event, state, steps)]
            if event.phase == "team" and self.cell.visits:
                found = [
                    row._replace(**visits)
                    for row, visits in zip(found, self._visits(event.samples, state), strict=True)
                ]
            self.rows += found
            if event.over:
                self._steps = steps
        elif event.phase == "done":
            imagined = state.imagined_return.mean.tolist()
            kept = self._evaluate(event, state, self._steps)
            self.rows += [Row(*row)._replace(imagined=own) for row, own in zip(kept, imagined, strict=True)]
        if event.over:
            self._write()

    def _evaluate(self, event: Event, state: MarcoState, steps: Any) -> Iterator[tuple[Any, ...]]:
        imagined = event.metrics.get("imagined_return", [None] * len(self.marco.seeds))
        for index, seed in enumerate(self.marco.seeds):
            policy = state.policy(self.marco.config, index)
            value = evaluate(self.env, policy, TEST_EPISODES, TEST_SEED).mean
            yield event.phase, seed, event.samples, int(steps[index]), value, imagined[index]

    def _visits(self, samples: int, state: MarcoState) -> Iterator[dict[str, Any]]:
        """What the data cover, and how uncertain the model is about the pairs that the team meets.

        The team acts as it would collect, with some random actions: greedily it meets a handful of pairs.
        """
        assert state.model is not None
        model, config = state.model, self.marco.config
        share = len(self._reachable)
        for index, episodes in enumerate(self.marco.episodes(samples)):
            steps = self.met_pairs(EpsilonGreedy(state.policy(config, index), jnp.float32(config.epsilon)))
            one = jax.tree.map(lambda leaf, index=index: leaf[index], model)
            log = np.log(np.maximum(np.asarray(_r_tilde(one.models[0], config.bonus, steps)), 1e-12))
            quantiles = dict(
                zip(("r05", "r25", "r50", "r75", "r95"), np.quantile(log, QUANTILES), strict=True)
            )
            met = {
                _key(s, a) for s, a in zip(np.asarray(steps.state), np.asarray(steps.actions), strict=True)
            }
            yield {"pairs": len(_pairs(episodes) & self._reachable) / share, "met": len(met) / share} | {
                name: float(value) for name, value in quantiles.items()
            }

    def met_pairs(self, policy: Policy) -> ObservedSteps:
        """5,000 of the steps that a policy takes in the true environment."""
        spec, view = self.env.spec, make_view(self.marco.config.view)
        played = rollouts(jax.random.key(TEST_SEED), self.env, policy, PAIRS)
        (steps,) = observed_steps(view, spec, played, PAIRS * spec.horizon)
        # Rows are ordered by time: the first would all be first steps.
        real = np.random.default_rng(0).choice(np.flatnonzero(steps.real), PAIRS, replace=False)
        return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[real]), steps)

    @cached_property
    def _reachable(self) -> set[bytes]:
        assert isinstance(self.env, FiniteEnvironment)
        pairs = reachable_pairs(self.env)
        return {_key(s, a) for s, a in zip(pairs.state, pairs.actions, strict=True)}

    def _write(self) -> None:
        spent = self.seconds_before + time.perf_counter() - self._begun
        write(self._folder / "curve.csv", {"seconds": round(spent, 1)}, self.rows)

    def _read(self) -> tuple[list[Row], float]:
        """What earlier attempts measured of the phases that the journal has kept."""
        if not (self._folder / "curve.csv").exists():
            return [], 0.0
        found, kept = read(self._folder / "curve.csv"), self._kept()
        return [row for row in found.rows if (row.phase, row.samples) in kept], float(found.facts["seconds"])

    def _kept(self) -> list[tuple[str, int]]:
        """The phases that are done and are measured."""
        config = self.marco.config
        measured = {"final"} | ({"team"} if config.team_steps and not config.candidates else set())
        done = islice(phases(config), self.marco.journal.latest)
        return [(phase.name, phase.samples) for phase in done if phase.name in measured]

    def _catch_up(self) -> None:
        """Measure the last phase that was kept, if the run was stopped before it was measured."""
        have = {(row.phase, row.samples) for row in self.rows}
        missing = [phase for phase in self._kept() if phase not in have]
        if not missing:
            return
        *_, last = islice(phases(self.marco.config), self.marco.journal.latest)
        if missing != [(last.name, last.samples)]:
            raise ValueError(
                f"{self._folder / 'curve.csv'} has no rows of {missing[0][0]} at {missing[0][1]} samples: "
                f"delete {self._folder}, and the cell is run again."
            )
        ended = [event for event in read_events(self._folder) if event.phase == last.name]
        self.add(ended[-1], self.marco.restore())


def _r_tilde(model: Any, bonus: Any, steps: ObservedSteps) -> Float[np.ndarray, " pairs"]:
    return np.asarray(_uncertainties(model, bonus, steps))


@partial(jax.jit, static_argnames="bonus")
def _uncertainties(model: Any, bonus: Any, steps: ObservedSteps) -> Any:
    return jax.vmap(lambda *step: uncertainty(model, bonus, *step))(*steps[:-1])


def _key(state: Any, actions: Any) -> bytes:
    return np.asarray(state, np.float32).tobytes() + np.asarray(actions, np.int32).tobytes()


def _pairs(episodes: Episode) -> set[bytes]:
    mask = np.asarray(episodes.mask)
    state, actions = np.asarray(episodes.state)[:-1][mask], np.asarray(episodes.actions)[mask]
    return {_key(s, a) for s, a in zip(state, actions, strict=True)}
