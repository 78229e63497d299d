"""Planned teams: where the states that occurred are few, the model is also solved by the exact planner.

Deep learners get stuck in games of coordination that a planner solves in seconds. Its tables are counts of
the real steps, smoothed by what the learned model predicts; its team is one more candidate, and has to do
better in the model than those that were trained there.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from threading import Event
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.algorithm.collect import promises_more, whole_returns
from marco.checks import cores
from marco.environments.enumeration import padded
from marco.learners.candidates import Best
from marco.learners.parallel import evaluate_all, stack_seeds
from marco.learners.restarts import RestartKeys
from marco.model.components import Component, Known, Model
from marco.model.environment import ModelEnvironment
from marco.policies.base import EpsilonGreedy, Policy
from marco.policies.controller import FAR, ControllerPolicy
from marco.tabular.apart import NEVER, solve_apart
from marco.tabular.estimate import Counts, Prior, count, estimate
from marco.tabular.policies import Team
from marco.trees import repeated, row_of
from marco.types import Episode, Spec

NODES, OBSERVATIONS, HORIZON = 128, 32, 40
"""The largest controllers that are kept: nodes at a step, observations of an agent, steps."""
JOINT_ACTIONS = 1_000
"""The most joint actions of an environment that is planned in."""
ROWS = 4_000_000
"""The most triples (s, a, s') of which the model is asked."""
UNLIKELY = 0.01
"""A predicted probability below which an outcome that never occurred is left out."""

HASTE = 10
"""For a chunk of data the planner searches so many times shorter than for the last team."""


class Plan(NamedTuple):
    """A planned team, and what is known of it."""

    policy: ControllerPolicy
    value: float
    """In the tables it was planned with."""
    optimal: bool
    """Whether it is proved to be the best there."""


def can_plan(spec: Spec) -> bool:
    """Whether controllers for an environment of this shape are small enough to be kept."""
    return spec.horizon <= HORIZON and prod(agent.num_actions for agent in spec.agents) <= JOINT_ACTIONS


def no_plan(spec: Spec) -> ControllerPolicy:
    """Controllers of the largest shape that always take action 0: in the place of a team not found."""
    team, steps = spec.num_agents, spec.horizon
    return ControllerPolicy(
        jnp.zeros((team, steps, NODES), jnp.int16),
        jnp.zeros((team, steps, NODES, OBSERVATIONS), jnp.int16),
        jnp.zeros((team, OBSERVATIONS, spec.observation_width), jnp.float32),
        spec,
    )


def plan(model: Model, episodes: Episode, effort: int, left: Event = NEVER) -> Plan | None:
    """The best team that is found in the tables of a model; None if its states are too many, or too new.

    `effort` limits the search; it ends at once when nobody waits for it any more.
    """
    spec = model.spec
    counts = _few(spec, episodes)
    if counts is None:
        return None
    dynamics = estimate(counts, predictions(model, counts))
    found = solve_apart(dynamics, spec.horizon + 1, effort, left)
    policy = None if found is None else _policy(spec, counts, found.team)
    return None if found is None or policy is None else Plan(policy, found.lower, found.optimal)


def few_enough(spec: Spec, episodes: Sequence[Episode]) -> bool:
    """Whether the states met in the episodes of every seed are few enough for a plan."""
    return all(_few(spec, own) is not None for own in episodes)


def _few(spec: Spec, episodes: Episode) -> Counts | None:
    """What was counted; None if it is too much."""
    counts = count(spec, episodes) if can_plan(spec) else None
    if counts is None or max(counts.num_observations) > OBSERVATIONS:
        return None
    return counts if int((counts.visits > 0.0).sum()) * len(counts.states) <= ROWS else None


def planned_on_the_way(envs: ModelEnvironment, episodes: Sequence[Episode], effort: int) -> list[Plan | None]:
    """A plan for every seed, if one is soon proved to be the best in its tables.

    A search that is cut short in the riddle of `switch` finds a team that never does anything: half of a
    chunk by that teaches nothing, and leads the learners that begin with recorded actions astray.
    """
    found = _plan_all(envs, episodes, effort // HASTE)
    return [one if one is not None and one.optimal else None for one in found]


class PlansAhead:
    """`planned_on_the_way` for the next chunk, in a thread while the exploration policy is trained."""

    def __init__(self) -> None:
        self._samples, self._plans = 0, Future[list[Plan | None]]()

    def begin(self, samples: int, envs: ModelEnvironment, episodes: Sequence[Episode], effort: int) -> None:
        """Plan with the first `samples` of the data."""
        thread = ThreadPoolExecutor(1)
        self._samples, self._plans = samples, thread.submit(planned_on_the_way, envs, episodes, effort)
        thread.shutdown(wait=False)

    def get(
        self, samples: int, envs: ModelEnvironment, episodes: Sequence[Episode], effort: int
    ) -> list[Plan | None]:
        """The plans that were begun; made now, if none were."""
        begun = samples == self._samples
        return self._plans.result() if begun else planned_on_the_way(envs, episodes, effort)


def pays(plan: Plan | None, episodes: Episode) -> bool:
    """Whether a plan is to earn more than was earned so far: only then it collects."""
    return plan is not None and promises_more(plan.value, whole_returns(episodes))


def _plan_all(
    envs: ModelEnvironment, episodes: Sequence[Episode], effort: int, left: Event = NEVER
) -> list[Plan | None]:
    def one(index: int) -> Plan | None:
        model = row_of(envs, index).models[0]
        return None if left.is_set() else plan(model, episodes[index], effort, left)

    with ThreadPoolExecutor(max(1, min(len(episodes), cores()))) as threads:
        return list(threads.map(one, range(len(episodes))))


@contextmanager
def planned_beside(
    envs: ModelEnvironment, episodes: Sequence[Episode], effort: int
) -> Iterator[Future[list[Plan | None]]]:
    """Plan for every seed in a thread, while something else goes on; it has ended when this is left."""
    left = Event()
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(_plan_all, envs, episodes, effort, left)
        finally:
            left.set()


def planned_collectors(spec: Spec, plans: Sequence[Plan | None], epsilon: float) -> Policy:
    """The planned teams, with some random actions."""
    policy = stack_seeds([no_plan(spec) if one is None else one.policy for one in plans])
    return jax.vmap(EpsilonGreedy)(policy, jnp.full(len(plans), epsilon))


def evaluate_plans(keys: RestartKeys, envs: ModelEnvironment, plans: Sequence[Plan | None]) -> Best:
    """The planned teams and their values in the models: minus infinity where there is none."""
    policy = stack_seeds([no_plan(envs.spec) if one is None else one.policy for one in plans])
    value = np.asarray(evaluate_all(keys.evaluate[:, :1], repeated(policy), envs).mean)[:, 0]
    return Best(policy, jnp.where(np.array([one is not None for one in plans]), value, -jnp.inf))


def planned_like(spec: Spec, seeds: int) -> Best:
    """The shapes of what `evaluate_plans` gives."""

    def shapes() -> Best:
        return Best(jax.vmap(lambda _: no_plan(spec))(jnp.arange(seeds)), jnp.zeros(seeds))

    return jax.eval_shape(shapes)


def predictions(model: Model, counts: Counts) -> Prior:
    """What the model predicts of every pair that was visited: the mean over its members."""
    joint = np.stack(np.unravel_index(np.arange(counts.n.shape[1]), counts.actions), -1).astype(np.int32)
    state, action = np.nonzero(counts.visits)
    after = np.arange(counts.end)
    rows = np.repeat(np.arange(len(state)), counts.end), np.tile(after, len(state))
    moved = padded(
        _moved, model, counts.states[state[rows[0]]], joint[action[rows[0]]], counts.states[rows[1]]
    )
    chance, over, reward = (leaf.reshape(len(state), counts.end).astype(float) for leaf in moved)
    G, R = np.zeros(counts.n.shape), np.zeros(counts.visits.shape)
    goes_on = counts.after < counts.end
    shows = _shown(model, counts, joint, np.unique(action))
    G[state[:, None], action[:, None], np.flatnonzero(goes_on)] = (chance * (1.0 - over))[
        :, counts.after[goes_on]
    ] * shows[action][:, goes_on]
    G[state, action, np.flatnonzero(counts.after == counts.end)[0]] = (chance * over).sum(-1)
    G[state, action, np.flatnonzero(counts.after == counts.end + 1)[0]] = np.clip(
        1.0 - G[state, action].sum(-1), 0.0, 1.0
    )
    R[state, action] = (chance * reward).sum(-1) / np.maximum(chance.sum(-1), 1e-9)
    # Networks never say never: what they hardly expect, and never saw, would only make the search long.
    G[(G < UNLIKELY) & (counts.n == 0.0)] = 0.0
    return Prior(G / np.maximum(G.sum(-1, keepdims=True), 1e-9), R)


def _shown(
    model: Model, counts: Counts, joint: Int[np.ndarray, "JA N"], actions: Int[np.ndarray, " _"]
) -> Float[np.ndarray, "JA M"]:
    """The probability of each outcome's joint observation in its state, after each joint action."""
    goes_on = np.flatnonzero(counts.after < counts.end)
    each = np.unravel_index(counts.seen[goes_on], counts.num_observations)
    rows = np.stack([known[number] for known, number in zip(counts.observations, each, strict=True)], 1)
    at, column = np.repeat(actions, len(goes_on)), np.tile(np.arange(len(goes_on)), len(actions))
    chance = padded(_seen, model, counts.states[counts.after[goes_on[column]]], joint[at], rows[column])
    shown = np.zeros((len(joint), len(counts.seen)))
    shown[at, goes_on[column]] = chance
    return shown


@jax.jit
def _moved(
    model: Model, state: Float[Array, "P S"], actions: Int[Array, "P N"], after: Float[Array, "P S"]
) -> tuple[Float[Array, " P"], Float[Array, " P"], Float[Array, " P"]]:
    """The probability of a next state, that the episode ends with it, and the expected reward."""

    def one(s: Array, a: Array, next_s: Array) -> tuple[Array, Array, Array]:
        x = model.inputs.after_step(s, a, next_s)
        moved = _chance(model.dynamics, model.inputs.before_step(s, a), next_s)
        over = _chance(model.termination, x, jnp.ones(1))
        return moved, over, _reward(model, s, a, next_s)

    return jax.vmap(one)(state, actions, after)


@jax.jit
def _seen(
    model: Model, state: Float[Array, "P S"], actions: Int[Array, "P N"], rows: Float[Array, "P N O"]
) -> Float[Array, " P"]:
    """The probability of a joint observation."""

    def one(s: Array, a: Array, row: Array) -> Array:
        joint = jnp.concatenate([row[i, : g.observation_width] for i, g in enumerate(model.spec.agents)])
        return _chance(model.observation, model.inputs.before_step(s, a), joint)

    return jax.vmap(one)(state, actions, rows)


def _chance(part: Component | Known, x: Float[Array, " in"], row: Float[Array, " dimensions"]) -> Array:
    """The mean over members of the probability of a row of categorical features."""
    assert isinstance(part, Component)
    classes = part.layout.split(row).classes
    said = part.predict(x, classes).log_probability
    chosen = jnp.take_along_axis(said, classes[None, :, None], axis=-1)[..., 0]
    return jnp.exp(chosen.sum(-1)).mean()


def _reward(model: Model, s: Array, a: Array, next_s: Array) -> Array:
    if isinstance(model.reward, Known):
        return model.expected_reward(jnp.float32(0.0), s, a, next_s)
    count = model.reward.num_members
    members = (jnp.arange(count) + 0.5) / count
    return jax.vmap(lambda member: model.expected_reward(member, s, a, next_s))(members).mean()


def _policy(spec: Spec, counts: Counts, team: Team) -> ControllerPolicy | None:
    """The team as a policy; None if it is larger than what is kept. The tables' first step is no action."""
    empty = jax.tree.map(np.array, no_plan(spec))
    known = np.full(empty.observations.shape, FAR, np.float32)
    for agent, controller in enumerate(team):
        if max(len(now) for now in controller.actions) > NODES:
            return None
        for t in range(spec.horizon):
            actions, leads = controller.actions[t + 1], controller.successors[t].clip(0)
            empty.actions[agent, t, : len(actions)] = actions
            empty.successors[agent, t, : leads.shape[0], : leads.shape[1]] = leads
        rows = counts.observations[agent]
        known[agent, : len(rows)] = rows
    return ControllerPolicy(
        jnp.asarray(empty.actions), jnp.asarray(empty.successors), jnp.asarray(known), spec
    )
