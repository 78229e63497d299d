"""Algorithm 1 of the paper: MARCO, multi-agent RL with centralised models and exploration.

The loop is `Marco.run`. What it does to all seeds at once is in `over_seeds`; everything real goes through
`Marco._collect`. What happens between two phases is kept by a `Journal`, so that a run can be stopped
anywhere and go on as if it had not been.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from marco.dataset import Dataset
from marco.environments.environment import Environment, HostWorld
from marco.exploration import SeesState, exploration_spec
from marco.model.inputs import ComponentName
from marco.model.rivals import ViewedPolicy, view_and_gather, viewed_spec
from marco.over_seeds import (
    begin_both,
    exploration_worlds,
    fit_models,
    limits_of_batch,
    play_batch,
    seed_key,
    stacked,
    train_best_of,
    train_on,
    train_on_for,
)
from marco.plan import MarcoSettings
from marco.rollout import EpsilonGreedy, Policy, RandomPolicy, play
from marco.training import TrainingState
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
    """A phase has ended."""

    phase: Phase
    iteration: int
    samples: int
    """Real samples per seed so far."""
    numbers: dict[str, list[float]]
    """What it gave, one number per seed."""


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


@dataclass(frozen=True)
class Marco:
    """MARCO in a true world: settings, and where its real samples and its progress are kept."""

    world: Environment[Any] | HostWorld
    settings: MarcoSettings
    seeds: tuple[int, ...]
    dataset: Dataset
    journal: Journal
    known: tuple[tuple[ComponentName, Any], ...] = ()

    def run(self) -> Iterator[tuple[Event, MarcoState]]:
        """Algorithm 1. After every phase: what it gave, and what has been learned so far."""
        step, state = 0, self._begin()
        for iteration, target in enumerate(self.settings.schedule):
            if step < self.journal.latest and self.dataset.samples.min() < target:
                raise ValueError(
                    f"{self.dataset.folder} holds {self.dataset.samples.min()} samples, but {target} were "
                    "learned from: a chunk is missing. Put it back, or begin another run."
                )
            if collected := self._collect(iteration, target, state):  # line 4 and, with pi_phi, line 9
                yield collected, state
            last = target == self.settings.samples
            lines = (self._fit, self._finish) if last else (self._fit, self._train_team, self._explore)
            for line in lines:  # lines 6, 7 and 8
                step += 1
                if step < self.journal.latest:
                    continue
                if step == self.journal.latest:
                    state = self.journal.restore(self._template(target))
                    continue
                state, event = line(iteration, target, state)
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

    def _collect(self, iteration: int, target: int, state: MarcoState) -> Event | None:
        """Fill D up to `target` samples of each seed, not one more; a batch is stored before it is used."""
        if self.dataset.samples.min() >= target:
            return None
        policy = self._collector(iteration, state)
        while (missing := target - self.dataset.samples).max() > 0:
            keys = self._keys(self.dataset.chunks, 1)
            if isinstance(self.world, Environment):
                limits = [
                    limits_of_batch(int(count), self.settings.chunk, self.world.spec) for count in missing
                ]
                episodes = play_batch(keys, self.world, policy, jnp.asarray(np.stack(limits)))
            else:
                alone = jax.tree.map(lambda leaf: leaf[0], policy)
                episode = play(keys[0], self.world, alone, limit=int(missing[0]))
                episodes = jax.tree.map(lambda leaf: np.asarray(leaf)[None, :, None], episode)
            self.dataset.append(episodes)
        return Event("collect", iteration, target, {"return": self._returns(target)})

    def _fit(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """Line 6: train the model on all of D, from scratch."""
        keys = self._keys(iteration, 2)
        model, reports = fit_models(keys, self._data(target), self.settings, self.world.spec, self.known)
        losses = {
            name: np.asarray(report.loss).sum(-1).mean(-1).tolist() for name, report in reports[0].items()
        }
        return state._replace(model=model), Event("fit", iteration, target, losses)

    def _train_team(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """Line 7: train Q_theta inside the model."""
        settings, numbers = self.settings, {}
        if settings.team_steps:
            team, metrics = train_on_for(
                self._keys(iteration, 3),
                state.model,
                settings.team,
                state.team,
                settings.team_steps,
                self.spec,
            )
            state, numbers = state._replace(team=team), {"imagined_return": metrics["return"].tolist()}
        return state, Event("team", iteration, target, numbers)

    def _explore(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """Line 8: train Q_phi inside the model, on the reward of Equation 1, seeing the state."""
        settings = self.settings
        if settings.collector != "explorer":
            return state, Event("explore", iteration, target, {})
        keys, explorer = self._keys(iteration, 4), state.explorer
        if not settings.warm_explorer:
            fresh = self._keys(iteration, 6)
            explorer = begin_both(fresh, settings.team, settings.explorer, self.spec)[1]
        worlds = exploration_worlds(state.model, settings.lam, settings.bonus)
        spec = exploration_spec(self.spec)
        explorer, metrics = train_on_for(
            keys, worlds, settings.explorer, explorer, settings.explorer_steps, spec
        )
        numbers = {"exploration_return": metrics["return"].tolist()}
        return state._replace(explorer=explorer), Event("explore", iteration, target, numbers)

    def _finish(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """The budget is spent: train the team to the end in the last model; keep the best, judged there."""
        settings, keys = self.settings, self._keys(iteration, 5)
        if settings.restarts:
            team, values = train_best_of(
                keys, state.model, settings.team, settings.final_updates, settings.restarts
            )
        else:
            team, values = train_on(
                keys, state.model, settings.team, state.team, settings.final_updates, self.spec
            )
        return state._replace(team=team), Event(
            "finish", iteration, target, {"imagined_return": np.asarray(values).tolist()}
        )

    def _collector(self, iteration: int, state: MarcoState) -> Policy:
        """Who collects: at first chance, then pi_phi (or another), epsilon-greedily. Seeds first."""
        settings, spec = self.settings, self.world.spec
        epsilon = jnp.full(len(self.seeds), settings.epsilon)
        who = "random" if iteration == 0 else settings.collector
        match who:
            case "random":
                return jax.vmap(lambda e: EpsilonGreedy(RandomPolicy(), e))(epsilon)
            case "team":

                def team(state: TrainingState, e: Float[Array, ""]) -> Policy:
                    return EpsilonGreedy(settings.team.greedy(state.learner), e)

                return jax.vmap(team)(state.team, epsilon)

        def explorer(state: TrainingState, e: Float[Array, ""]) -> Policy:
            seeing = SeesState(EpsilonGreedy(settings.explorer.greedy(state.learner), e))
            return ViewedPolicy(seeing, settings.kind, spec)

        return jax.vmap(explorer)(state.explorer, epsilon)

    def _data(self, target: int) -> Any:
        """D as rows, stacked over seeds; its shape depends on the budget alone."""
        kind, spec, capacity = self.settings.kind, self.world.spec, self.settings.samples
        rows = [
            view_and_gather(kind, spec, self.dataset.episodes(index, target), capacity)
            for index in range(len(self.seeds))
        ]
        return stacked(rows)

    def _template(self, target: int) -> MarcoState:
        """The shape of what is learned by the time of a checkpoint."""
        fit = partial(fit_models, settings=self.settings, spec=self.world.spec, known=self.known)
        model, _ = jax.eval_shape(fit, self._keys(0, 2), self._data(target))
        return self._begin()._replace(model=model)

    def _returns(self, target: int) -> list[float]:
        """The mean return of the real episodes so far that were not cut off."""
        means = []
        for index in range(len(self.seeds)):
            episodes = self.dataset.episodes(index, target)
            whole = np.asarray(episodes.terminated | episodes.truncated).any(0)
            returns = np.asarray(episodes.undiscounted_return)[whole]
            means.append(float(returns.mean()) if whole.any() else 0.0)
        return means

    def _keys(self, *path: int) -> Key[Array, " seeds"]:
        """A key per seed for one use."""
        return jnp.stack([seed_key(seed, *path) for seed in self.seeds])
