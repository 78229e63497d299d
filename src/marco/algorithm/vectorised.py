"""What Algorithm 1 does, for all seeds at once: each function is a `vmap` of one that treats one seed."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from marco.algorithm.demonstrations import DemonstrationEnvironment, Demonstrations
from marco.algorithm.exploration import ExplorationEnvironment, exploration_spec
from marco.algorithm.threads import side_by_side
from marco.environments.base import Environment
from marco.learners.base import Learner, Metrics
from marco.learners.training import (
    RestartKeys,
    TrainingState,
    begin,
    begin_several,
    judge,
    restart_keys,
    train,
    train_until,
)
from marco.model.environment import ResampleMember
from marco.model.fit import ModelConfig
from marco.model.inputs import ComponentName
from marco.model.uncertainty import BonusName
from marco.model.views import ModelKind, Part, fit_part, learned_world, parts_of
from marco.policies.base import Policy
from marco.rollout import rollout
from marco.types import Episode, Spec


def seed_key(seed: int, *path: int) -> PRNGKeyArray:
    """A key for one use: what happens depends on the seed and the place in the run alone."""
    key = jax.random.key(seed)
    for number in path:
        key = jax.random.fold_in(key, number)
    return key


def stacked(rows: list[Any]) -> Any:
    """The rows of all seeds, seeds first: if rewards are numbers for one of them, they are for all."""
    few = [all(data.reward_values.size for data in one) for one in zip(*rows, strict=True)]
    alike = [
        tuple(
            data if discrete else data._replace(reward_values=jnp.zeros(0))
            for data, discrete in zip(row, few, strict=True)
        )
        for row in rows
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)


@partial(jax.jit, static_argnames=("team", "explorer", "spec"))
def begin_both(
    keys: Key[Array, " seeds"], team: Learner, explorer: Learner, spec: Spec
) -> tuple[TrainingState, TrainingState]:
    """A team and an exploration policy that have learned nothing."""

    def one(key: PRNGKeyArray) -> tuple[TrainingState, TrainingState]:
        key_team, key_explorer = jax.random.split(key)
        return begin(key_team, team, spec), begin(key_explorer, explorer, exploration_spec(spec))

    return jax.vmap(one)(keys)


@jax.jit
def play_batch(
    keys: Key[Array, " seeds"], world: Environment, policies: Policy, limits: Int[Array, "seeds B"]
) -> Episode:
    """A batch of real episodes for each seed (axes seeds T B), each no longer than its limit."""

    def one(key: PRNGKeyArray, policy: Policy, limits: Int[Array, " B"]) -> Episode:
        keys = jax.random.split(key, limits.shape[0])
        return jax.vmap(rollout, in_axes=(0, None, None, 0), out_axes=1)(keys, world, policy, limits)

    return jax.vmap(one)(keys, policies, limits)


@dataclass(frozen=True)
class ModelPlan:
    """Which model to learn, of which world: with the shapes of the data all that its programs depend on."""

    kind: ModelKind
    settings: ModelConfig
    resample_member: ResampleMember
    spec: Spec
    known: tuple[tuple[ComponentName, Any], ...] = ()


def fit_models(keys: Key[Array, " seeds"], data: Any, plan: ModelPlan) -> tuple[Any, Any]:
    """A model of each seed's data, and how its training went.

    Each component is a program of its own, compiled and run beside the others: none needs another.
    """
    parts = parts_of(plan.kind, plan.spec, dict(plan.known))
    # Within a trace nothing is run, and threads know nothing of each other's traces.
    each = map if isinstance(keys, jax.core.Tracer) else side_by_side
    fitted = each(lambda part: _fit_part(keys, data, plan, part), parts)
    return _learned_worlds(data, dict(zip(parts, fitted, strict=True)), plan)


@partial(jax.jit, static_argnames=("plan", "part"))
def _fit_part(keys: Key[Array, " seeds"], data: Any, plan: ModelPlan, part: Part) -> Any:
    def one(key: PRNGKeyArray, rows: Any) -> Any:
        return fit_part(key, plan.kind, plan.spec, rows, plan.settings, part)

    return jax.vmap(one)(keys, data)


@partial(jax.jit, static_argnames="plan")
def _learned_worlds(data: Any, fitted: dict[Part, Any], plan: ModelPlan) -> tuple[Any, Any]:
    def one(rows: Any, fitted: dict[Part, Any]) -> tuple[Any, Any]:
        known = dict(plan.known)
        return learned_world(plan.kind, plan.spec, rows, plan.settings, fitted, known, plan.resample_member)

    return jax.vmap(one)(data, fitted)


@partial(jax.jit, static_argnames=("learner", "spec"))
def forget(learner: Learner, states: TrainingState, spec: Spec) -> TrainingState:
    """Before training on in a new model: what was learned is kept, old episodes are not."""
    return jax.vmap(lambda state: state._replace(learner=learner.forget(state.learner, spec)))(states)


@partial(jax.jit, static_argnames="learner")
def train_until_all(
    keys: Key[Array, " seeds"],
    worlds: Environment,
    learner: Learner,
    states: TrainingState,
    targets: Int[Array, " seeds"],
) -> tuple[TrainingState, Metrics]:
    """One piece of a training in the models, each until it has taken so many steps in all."""

    def one(key: PRNGKeyArray, world: Environment, state: TrainingState, target: Int[Array, ""]) -> Any:
        return train_until(key, world, learner, state, target)

    return jax.vmap(one)(keys, worlds, states, targets)


@partial(jax.jit, static_argnames=("learner", "spec", "restarts"))
def begin_restarts(
    keys: Key[Array, " seeds"], learner: Learner, spec: Spec, restarts: int
) -> tuple[TrainingState, RestartKeys]:
    """Several teams for each seed that have learned nothing (axes seeds R), and the keys of their lives."""

    def one(key: PRNGKeyArray) -> tuple[TrainingState, RestartKeys]:
        keys = restart_keys(key, restarts)
        return begin_several(keys.begin, learner, spec), keys

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnames="learner")
def train_restarts(
    keys: Key[Array, "seeds R"],
    states: TrainingState,
    worlds: Environment,
    learner: Learner,
    updates: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """One piece of the training of several teams in each seed's model."""

    def one(keys: Key[Array, " R"], states: TrainingState, world: Environment) -> Any:
        return jax.vmap(lambda key, state: train(key, world, learner, state, updates))(keys, states)

    return jax.vmap(one)(keys, states, worlds)


@partial(jax.jit, static_argnames="learner")
def greedy_teams(learner: Learner, states: TrainingState) -> Policy:
    """The policies of several teams of each seed (axes seeds R)."""
    return jax.vmap(jax.vmap(lambda state: learner.greedy(state.learner)))(states)


@jax.jit
def judge_restarts(
    keys: Key[Array, "seeds R"], policies: Policy, worlds: Environment
) -> Float[Array, "seeds R"]:
    """What each of the teams is worth in its seed's model."""

    def one(keys: Key[Array, " R"], policies: Policy, world: Environment) -> Array:
        return jax.vmap(lambda key, policy: judge(key, world, policy)[0])(keys, policies)

    return jax.vmap(one)(keys, policies, worlds)


class BestTeams(NamedTuple):
    """The best team of each seed so far, and what it was worth when it was chosen."""

    teams: TrainingState
    values: Float[Array, " seeds"]


@jax.jit
def better_teams(before: BestTeams, states: TrainingState, values: Float[Array, "seeds R"]) -> BestTeams:
    """The best of those before and of new ones (axes seeds R)."""

    def one(before: BestTeams, states: TrainingState, values: Float[Array, " R"]) -> BestTeams:
        best = jnp.argmax(values)
        now = BestTeams(jax.tree.map(lambda leaf: leaf[best], states), values[best])
        return jax.tree.map(lambda new, old: jnp.where(now.values > before.values, new, old), now, before)

    return jax.vmap(one)(before, states, values)


@partial(jax.jit, static_argnames="bonus")
def exploration_worlds(worlds: Environment, lam: Float[ArrayLike, ""], bonus: BonusName) -> Any:
    """The models as worlds to explore."""
    return jax.vmap(lambda world: ExplorationEnvironment(world, jnp.float32(lam), bonus))(worlds)


@jax.jit
def with_demonstrations(worlds: Environment, pasts: Demonstrations, share: Float[ArrayLike, ""]) -> Any:
    """The models as worlds in which a share of the episodes begin by retracing real ones."""
    return jax.vmap(lambda world, past: DemonstrationEnvironment(world, past, jnp.float32(share)))(
        worlds, pasts
    )
