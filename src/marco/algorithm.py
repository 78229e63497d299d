"""Algorithm 1 of the paper: MARCO, multi-agent RL with centralised models and exploration.

The loop is `Marco.run`. Everything it does to many seeds at once is a `vmap` of a function below that treats
one; everything real goes through `Marco.collect`. What happens between two phases is kept by a `Journal`, so
that a run can be stopped anywhere and go on as if it had not been.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from marco.dataset import Dataset
from marco.environments.environment import Environment, HostWorld
from marco.exploration import ExplorationEnvironment, SeesState, exploration_spec
from marco.learners.learner import Learner
from marco.model.fit import ModelSettings
from marco.model.inputs import ComponentName
from marco.model.learned import MemberPer
from marco.model.rivals import ModelKind, ViewedPolicy, fit_data, view_and_gather, viewed_spec
from marco.model.uncertainty import BonusName
from marco.rollout import EpsilonGreedy, Policy, RandomPolicy, play, rollout, rollouts
from marco.training import TrainingState, begin, train, train_best, train_steps
from marco.types import Episode, Spec

Collector = Literal["explorer", "team", "random"]
Phase = Literal["collect", "fit", "team", "explore", "finish", "done"]


@dataclass(frozen=True)
class MarcoSettings:
    """The letters of Algorithm 1, and how long each of its lines goes on."""

    samples: int
    """The budget: real steps per seed. Never one more is taken."""
    first: int
    """Samples of the first chunk, collected at random."""
    chunk: int
    """Samples of each later chunk."""
    team: Learner
    explorer: Learner
    model: ModelSettings
    kind: ModelKind = "centralised"
    member_per: MemberPer = "step"
    collector: Collector = "explorer"
    """Who collects the later chunks: the exploration policy, or, to see what it is good for, another."""
    epsilon: float = 0.1
    """The share of random actions in collection."""
    lam: float = 2.0
    """lambda: the weight of what the ensemble disagrees on."""
    bonus: BonusName = "variance"
    explorer_steps: int = 100_000
    """Model steps for the exploration policy after every refit."""
    warm_explorer: bool = True
    """Whether the exploration policy goes on from what it was before the refit."""
    team_steps: int = 0
    """Model steps for the team after every refit, before the last."""
    final_updates: int = 3_000
    """Updates of the team in the last model."""
    restarts: int = 1
    """In the last model so many teams are trained from scratch; the best is kept, chosen inside the model.

    0: the team that was trained all along is trained on."""

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.samples:
            raise ValueError(f"first={self.first} must be from 1 to the budget of {self.samples} samples.")
        for name in ("chunk", "final_updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("explorer_steps", "team_steps", "restarts", "lam"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}.")
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon must be between 0 and 1, got {self.epsilon}.")
        if self.collector == "team" and self.team_steps == 0:
            raise ValueError("collector='team' needs a team that learns on the way: give team_steps.")

    @property
    def schedule(self) -> tuple[int, ...]:
        """How many samples there are to be at each fit of the model."""
        return (*range(self.first, self.samples, self.chunk), self.samples)


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
        team, explorer = _begin(self._keys(0, 0), self.settings.team, self.settings.explorer, self.spec)
        return MarcoState(team, explorer, None)

    def _collect(self, iteration: int, target: int, state: MarcoState) -> Event | None:
        """Fill D up to `target` samples of each seed, not one more; a batch is stored before it is used."""
        if self.dataset.samples.min() >= target:
            return None
        policy = self._collector(iteration, state)
        while (missing := target - self.dataset.samples).max() > 0:
            keys = self._keys(self.dataset.chunks, 1)
            if isinstance(self.world, Environment):
                limits = [_limits(int(count), self.settings.chunk, self.world.spec) for count in missing]
                episodes = _play_batch(keys, self.world, policy, jnp.asarray(np.stack(limits)))
            else:
                alone = jax.tree.map(lambda leaf: leaf[0], policy)
                episode = play(keys[0], self.world, alone, limit=int(missing[0]))
                episodes = jax.tree.map(lambda leaf: np.asarray(leaf)[None, :, None], episode)
            self.dataset.append(episodes)
        return Event("collect", iteration, target, {"return": self._returns(target)})

    def _fit(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """Line 6: train the model on all of D, from scratch."""
        keys = self._keys(iteration, 2)
        model, reports = _fit(keys, self._data(target), self.settings, self.world.spec, self.known)
        losses = {
            name: np.asarray(report.loss).sum(-1).mean(-1).tolist() for name, report in reports[0].items()
        }
        return state._replace(model=model), Event("fit", iteration, target, losses)

    def _train_team(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """Line 7: train Q_theta inside the model."""
        settings, numbers = self.settings, {}
        if settings.team_steps:
            team, metrics = _improve(
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
            explorer = _begin(keys, settings.team, settings.explorer, self.spec)[1]
        worlds = _exploration(state.model, settings.lam, settings.bonus)
        spec = exploration_spec(self.spec)
        explorer, metrics = _improve(keys, worlds, settings.explorer, explorer, settings.explorer_steps, spec)
        numbers = {"exploration_return": metrics["return"].tolist()}
        return state._replace(explorer=explorer), Event("explore", iteration, target, numbers)

    def _finish(self, iteration: int, target: int, state: MarcoState) -> tuple[MarcoState, Event]:
        """The budget is spent: train the team to the end in the last model; keep the best, judged there."""
        settings, keys = self.settings, self._keys(iteration, 5)
        if settings.restarts:
            team, values = _best(keys, state.model, settings.team, settings.final_updates, settings.restarts)
        else:
            team, values = _train_on(
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
                one = lambda state, e: EpsilonGreedy(settings.team.greedy(state.learner), e)  # noqa: E731
                return jax.vmap(one)(state.team, epsilon)

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
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *_same_rewards(rows))

    def _template(self, target: int) -> MarcoState:
        """The shape of what is learned by the time of a checkpoint."""
        fit = partial(_fit, settings=self.settings, spec=self.world.spec, known=self.known)
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


def seed_key(seed: int, *path: int) -> PRNGKeyArray:
    """A key for one use: what happens depends on the seed and the place in the run alone."""
    key = jax.random.key(seed)
    for number in path:
        key = jax.random.fold_in(key, number)
    return key


def _limits(missing: int, chunk: int, spec: Spec) -> Int[np.ndarray, " B"]:
    """How many steps each episode of a batch may take, so that all together take no more than are missing."""
    width = max(1, chunk // spec.horizon)
    whole = min(width, missing // spec.horizon)
    limits = np.where(np.arange(width) < whole, spec.horizon, 0)
    if whole == 0:
        limits[0] = max(missing, 0)
    return limits.astype(np.int32)


def _same_rewards(rows: list[Any]) -> list[Any]:
    """Seeds are fitted by one program: if rewards are numbers for one of them, they are for all."""
    few = [all(data.reward_values.size for data in one) for one in zip(*rows, strict=True)]
    return [
        tuple(
            data if discrete else data._replace(reward_values=jnp.zeros(0))
            for data, discrete in zip(row, few, strict=True)
        )
        for row in rows
    ]


@partial(jax.jit, static_argnames=("team", "explorer", "spec"))
def _begin(
    keys: Key[Array, " seeds"], team: Learner, explorer: Learner, spec: Spec
) -> tuple[TrainingState, TrainingState]:
    def one(key: PRNGKeyArray) -> tuple[TrainingState, TrainingState]:
        key_team, key_explorer = jax.random.split(key)
        return begin(key_team, team, spec), begin(key_explorer, explorer, exploration_spec(spec))

    return jax.vmap(one)(keys)


@jax.jit
def _play_batch(
    keys: Key[Array, " seeds"], world: Environment[Any], policies: Policy, limits: Int[Array, "seeds B"]
) -> Episode:
    """A batch of real episodes for each seed (axes seeds T B), each no longer than its limit."""

    def one(key: PRNGKeyArray, policy: Policy, limits: Int[Array, " B"]) -> Episode:
        keys = jax.random.split(key, limits.shape[0])
        return jax.vmap(rollout, in_axes=(0, None, None, 0), out_axes=1)(keys, world, policy, limits)

    return jax.vmap(one)(keys, policies, limits)


@partial(jax.jit, static_argnames=("settings", "spec", "known"))
def _fit(
    keys: Key[Array, " seeds"], data: Any, settings: MarcoSettings, spec: Spec, known: tuple[Any, ...]
) -> tuple[Any, Any]:
    def one(key: PRNGKeyArray, rows: Any) -> tuple[Any, Any]:
        given = dict(known) or None
        return fit_data(key, settings.kind, spec, rows, settings.model, given, settings.member_per)

    return jax.vmap(one)(keys, data)


@partial(jax.jit, static_argnames=("learner", "spec"))
def _improve(
    keys: Key[Array, " seeds"],
    worlds: Environment[Any],
    learner: Learner,
    states: TrainingState,
    steps: Int[ArrayLike, ""],
    spec: Spec,
) -> tuple[TrainingState, dict[str, Array]]:
    """Train on in a new model: what was learned is kept, old episodes are not."""

    def one(key: PRNGKeyArray, world: Environment[Any], state: TrainingState) -> Any:
        state = state._replace(learner=learner.forget(state.learner, spec))
        return train_steps(key, world, learner, state, steps)

    return jax.vmap(one)(keys, worlds, states)


@partial(jax.jit, static_argnames=("learner", "restarts"))
def _best(
    keys: Key[Array, " seeds"],
    worlds: Environment[Any],
    learner: Learner,
    updates: Int[ArrayLike, ""],
    restarts: int,
) -> tuple[TrainingState, Float[Array, " seeds"]]:
    def one(key: PRNGKeyArray, world: Environment[Any]) -> tuple[TrainingState, Array]:
        best = train_best(key, world, learner, updates, restarts)
        return best.state, best.values.max()

    return jax.vmap(one)(keys, worlds)


@partial(jax.jit, static_argnames=("learner", "spec"))
def _train_on(
    keys: Key[Array, " seeds"],
    worlds: Environment[Any],
    learner: Learner,
    states: TrainingState,
    updates: Int[ArrayLike, ""],
    spec: Spec,
) -> tuple[TrainingState, Float[Array, " seeds"]]:
    def one(key: PRNGKeyArray, world: Environment[Any], state: TrainingState) -> tuple[TrainingState, Array]:
        key_train, key_judge = jax.random.split(key)
        state = state._replace(learner=learner.forget(state.learner, spec))
        state, _ = train(key_train, world, learner, state, updates)
        judged = rollouts(key_judge, world, learner.greedy(state.learner), 4_096)
        return state, judged.undiscounted_return.mean()

    return jax.vmap(one)(keys, worlds, states)


@partial(jax.jit, static_argnames="bonus")
def _exploration(worlds: Environment[Any], lam: Float[ArrayLike, ""], bonus: BonusName) -> Any:
    return jax.vmap(lambda world: ExplorationEnvironment(world, jnp.float32(lam), bonus))(worlds)
