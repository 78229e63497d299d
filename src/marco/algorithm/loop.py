"""Algorithm 1 of the paper: MARCO, multi-agent RL with centralised models and exploration.

The loop is `Marco.run`. What it does to all seeds at once is in `over_seeds`; everything real goes through
`Marco.collect`. What happens between two phases is kept by a `Journal`, so that a run can be stopped
anywhere and go on as if it had not been.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from marco.algorithm.chunk_metrics import chunk_metrics
from marco.algorithm.collect import collectors, play_missing
from marco.algorithm.config import MarcoConfig
from marco.algorithm.demonstrations import demonstrations_from
from marco.algorithm.exploration import exploration_spec
from marco.algorithm.segments import by_groups, train_for, train_restarts_for
from marco.algorithm.vectorised import (
    BestTeams,
    ModelPlan,
    begin_both,
    begin_restarts,
    better_teams,
    exploration_worlds,
    fit_models,
    forget,
    greedy_teams,
    judge_restarts,
    seed_key,
    stacked,
    with_demonstrations,
)
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld
from marco.learners.training import TrainingState
from marco.model.inputs import ComponentName
from marco.model.views import view_and_gather, viewed_spec
from marco.types import Spec

Phase = Literal["collect", "fit", "team", "explore", "finish", "done"]


class MarcoState(NamedTuple):
    """What has been learned; seeds first."""

    team: TrainingState
    """Q_theta."""
    explorer: TrainingState
    """Q_phi."""
    model: Any
    """F-hat, played as a world; None before the first fit."""


class Event(NamedTuple):
    """Where a phase stands."""

    phase: Phase
    iteration: int
    samples: int
    """Real samples per seed so far."""
    numbers: dict[str, list[Any]]
    """What it gave so far, one number per seed; None where there is none."""
    share: float = 1.0
    """How much of the phase is over."""

    @property
    def over(self) -> bool:
        """Whether the phase has ended."""
        return self.share == 1.0


@runtime_checkable
class Journal(Protocol):
    """Keeps what has been learned, so that it need not be learned again."""

    @property
    def latest(self) -> int:
        """The number of the last phase that was kept; 0 if there is none."""

    def restore(self, like: MarcoState) -> MarcoState:
        """What had been learned by then."""

    def keep(self, step: int, state: MarcoState, event: Event) -> None:
        """Write down what was learned; it is safe when this returns."""

    def note(self, step: int, event: Event) -> None:
        """Write down what was collected; it is told again if the run stops before phase `step` is kept."""


@dataclass(frozen=True)
class Marco:
    """MARCO in a true world: settings, and where its real samples and its progress are kept."""

    world: Environment | HostWorld
    settings: MarcoConfig
    seeds: tuple[int, ...]
    dataset: Dataset
    journal: Journal
    known: tuple[tuple[ComponentName, Any], ...] = ()
    capacity: int | None = None
    """For how many samples to make room, if not for the budget: what is compiled depends on it."""

    def run(self) -> Iterator[tuple[Event, MarcoState]]:
        """Algorithm 1. As it goes: where the phase stands, and what has been learned so far."""
        step, state = 0, self._begin()
        for iteration, target in enumerate(self.settings.schedule):
            if step < self.journal.latest:
                self._check_collected(target)
            else:
                for event in self.collect(iteration, target, state):  # line 4 and, with pi_phi, line 9
                    if event.over:
                        self.journal.note(step + 1, event)
                    yield event, state
            last = target == self.settings.samples
            lines = (self.fit, self.finish) if last else (self.fit, self.train_team, self.explore)
            for line in lines:  # lines 6, 7 and 8
                step += 1
                if step < self.journal.latest:
                    continue
                if step == self.journal.latest:
                    state = self.journal.restore(self._template(target))
                    continue
                told = line(iteration, target, state)
                for event, state in told:
                    self._check_finite(event)
                    if event.over:
                        self.journal.keep(step, state, event)
                    yield event, state
        yield Event("done", iteration, target, {}), state

    @property
    def spec(self) -> Spec:
        """The shape of the learned world."""
        return viewed_spec(self.settings.kind, self.world.spec)

    def _begin(self) -> MarcoState:
        """Line 2: nothing has been learned, there is no model."""
        team, explorer = begin_both(self._keys(0, 0), self.settings.team, self.settings.explorer, self.spec)
        return MarcoState(team, explorer, None)

    def collect(self, iteration: int, target: int, state: MarcoState) -> Iterator[Event]:
        """Fill D up to `target` samples of each seed, not one more; a batch is stored before it is used."""
        before = self.settings.schedule[iteration - 1] if iteration else 0
        settings = self.settings
        who = settings.collector if iteration else "random"
        policy = collectors(who, settings, self.world.spec, state.team, state.explorer)
        while (missing := target - self.dataset.samples).max() > 0:
            share = 1.0 - float(missing.max()) / (target - before)
            yield Event("collect", iteration, int(self.dataset.samples.min()), {}, share)
            keys = self._keys(self.dataset.chunks, 1)
            self.dataset.append(play_missing(keys, self.world, policy, missing, settings.chunk))
        chunk = [self.dataset.episodes(index, target, before) for index in range(len(self.seeds))]
        numbers = chunk_metrics(settings, self.world.spec, state.model, chunk)
        yield Event("collect", iteration, target, numbers)

    def fit(self, iteration: int, target: int, state: MarcoState) -> Iterator[tuple[Event, MarcoState]]:
        """Line 6: train the model on all of D, from scratch."""
        yield Event("fit", iteration, target, {}, 0.0), state
        keys = self._keys(iteration, 2)
        model, reports = fit_models(keys, self._data(target), self._model_plan)
        losses = {
            name: np.asarray(report.loss).sum(-1).mean(-1).tolist() for name, report in reports[0].items()
        }
        yield Event("fit", iteration, target, losses), state._replace(model=model)

    def train_team(
        self, iteration: int, target: int, state: MarcoState
    ) -> Iterator[tuple[Event, MarcoState]]:
        """Line 7: train Q_theta inside the model."""
        settings = self.settings
        if not settings.team_steps:
            yield Event("team", iteration, target, {}), state
            return
        yield Event("team", iteration, target, {}, 0.0), state
        keys, team = self._keys(iteration, 3), forget(settings.team, state.team, self.spec)
        worlds = self._retraced(target, state.model)
        for piece in train_for(keys, worlds, settings.team, team, settings.team_steps):
            numbers = {"imagined_return": piece.returns.tolist(), "model_steps": piece.steps.tolist()}
            yield Event("team", iteration, target, numbers, piece.share), state._replace(team=piece.states)

    def explore(self, iteration: int, target: int, state: MarcoState) -> Iterator[tuple[Event, MarcoState]]:
        """Line 8: train Q_phi inside the model, on the reward of Equation 1, seeing the state."""
        settings, explorer = self.settings, state.explorer
        if settings.collector != "explorer":
            yield Event("explore", iteration, target, {}), state
            return
        yield Event("explore", iteration, target, {}, 0.0), state
        if not settings.warm_explorer:
            fresh = self._keys(iteration, 6)
            explorer = begin_both(fresh, settings.team, settings.explorer, self.spec)[1]
        explorer = forget(settings.explorer, explorer, exploration_spec(self.spec))
        paid = exploration_worlds(state.model, settings.lam, settings.bonus)
        worlds, keys = self._retraced(target, paid), self._keys(iteration, 4)
        for piece in train_for(keys, worlds, settings.explorer, explorer, settings.explorer_steps):
            numbers = {"exploration_return": piece.returns.tolist(), "model_steps": piece.steps.tolist()}
            event = Event("explore", iteration, target, numbers, piece.share)
            yield event, state._replace(explorer=piece.states)

    def finish(self, iteration: int, target: int, state: MarcoState) -> Iterator[tuple[Event, MarcoState]]:
        """The budget is spent: train teams in the last model; keep the best there was, judged there."""
        settings, learner = self.settings, self.settings.team
        yield Event("finish", iteration, target, {}, 0.0), state
        several = max(1, settings.restarts)
        teams, keys = begin_restarts(self._keys(iteration, 5), learner, self.spec, several)
        if not settings.restarts:  # the team that was trained all along is the only one
            teams = jax.tree.map(lambda leaf: leaf[:, None], forget(learner, state.team, self.spec))
        worlds = self._retraced(target, state.model)
        nobody = BestTeams(
            jax.tree.map(lambda leaf: leaf[:, 0], teams), jnp.full(len(self.seeds), -jnp.inf, jnp.float32)
        )
        best = nobody
        for piece in train_restarts_for(keys.train, worlds, learner, teams, settings.final_updates):
            policies = greedy_teams(learner, piece.states)
            values = by_groups(judge_restarts, (keys.judge, policies), state.model)
            best = better_teams(best if settings.restarts else nobody, piece.states, values)
            numbers = {"imagined_return": best.values.tolist(), "model_steps": piece.steps.sum(-1).tolist()}
            event = Event("finish", iteration, target, numbers, 0.95 * piece.share)
            yield event, state._replace(team=best.teams)
        # The best of many was lucky when it was judged: what it is worth is asked once more.
        chosen = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], several, axis=1), best.teams)
        policies = greedy_teams(learner, chosen)
        values = by_groups(judge_restarts, (keys.again, policies), state.model).mean(-1)
        numbers = numbers | {"imagined_return": values.tolist()}
        yield Event("finish", iteration, target, numbers), state._replace(team=best.teams)

    def model_like(self, target: int) -> Any:
        """The shape of the model of so many samples."""
        fit = partial(fit_models, plan=self._model_plan)
        return jax.eval_shape(fit, self._keys(0, 2), self._data(target))[0]

    def _template(self, target: int) -> MarcoState:
        """The shape of what is learned by the time of a checkpoint."""
        return self._begin()._replace(model=self.model_like(target))

    def _retraced(self, target: int, worlds: Any) -> Callable[[float], Any]:
        """The worlds when so much of a training is over: at first some episodes in them retrace real ones."""
        if not self.settings.demonstration_share:
            return lambda done: worlds
        capacity = self.capacity or self.settings.samples
        pasts = [
            demonstrations_from(self.dataset.episodes(i, target), capacity) for i in range(len(self.seeds))
        ]
        stacked_pasts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pasts)
        demonstration_share = self.settings.demonstration_share
        return lambda done: with_demonstrations(
            worlds, stacked_pasts, demonstration_share * max(0.0, 1.0 - 2.0 * done)
        )

    def _check_finite(self, event: Event) -> None:
        for name, values in event.numbers.items():
            for seed, value in zip(self.seeds, values, strict=True):
                if not np.isfinite(value):
                    raise ValueError(
                        f"{event.phase}: the {name} of seed {seed} is {value} after {event.samples} samples: "
                        "learning ran off. All real samples are kept; in another run larger chunks, or a "
                        "smaller lam, may do (--data takes the samples along)."
                    )

    def _check_collected(self, target: int) -> None:
        if self.dataset.samples.min() < target:
            raise ValueError(
                f"{self.dataset.folder} holds {self.dataset.samples.min()} samples, but {target} were "
                "learned from: a chunk is missing. Put it back, or begin another run."
            )

    def _data(self, target: int) -> Any:
        """D as rows, stacked over seeds; its shape depends on the capacity alone."""
        kind, spec, capacity = self.settings.kind, self.world.spec, self.capacity or self.settings.samples
        rows = [
            view_and_gather(kind, spec, self.dataset.episodes(index, target), capacity)
            for index in range(len(self.seeds))
        ]
        return stacked(rows)

    @property
    def _model_plan(self) -> ModelPlan:
        settings = self.settings
        return ModelPlan(settings.kind, settings.model, settings.resample_member, self.world.spec, self.known)

    def _keys(self, *path: int) -> Key[Array, " seeds"]:
        """A key per seed for one use."""
        return jnp.stack([seed_key(seed, *path) for seed in self.seeds])
