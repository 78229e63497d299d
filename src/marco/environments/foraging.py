"""Level-based foraging: agents in a grid load food together, and only if their levels add up to its own.

The environment of the package `lbforaging` (2.0), step by step: the same moves, collisions, loads, rewards,
observations and starts. Here the team's reward is the sum of what the package gives each agent.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.checks import check_columns, check_types
from marco.environments.base import Environment, Transition
from marco.policies.base import Policy
from marco.types import ActionComponent, Agent, Categorical, Episode, Feature, Spec

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
ACTIONS = ("None", "North", "South", "West", "East", "Load")
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], np.int32)
"""The change of (row, column) by each action; row 0 is in the north."""
NOWHERE = -1
"""The row and column of a food that has been eaten, or that found no place at the start."""
LOWEST = 3
"""By default the largest level of a food is the sum of so many agents' levels, of the lowest ones."""

Levels = int | tuple[int, ...]
"""One level for all, or one for each; who gets which of several is drawn."""


class ForagingState(NamedTuple):
    """Where everybody and everything is. Foods stand in the order of their cells, row by row."""

    positions: Int[Array, "N 2"]
    levels: Int[Array, " N"]
    foods: Int[Array, "F 2"]
    food_levels: Int[Array, " F"]
    """As they were at the start: an eaten food keeps its level, by whose sum rewards are normalised."""

    @property
    def present(self) -> Bool[Array, " F"]:
        """Which foods are still there."""
        return self.foods[:, 0] != NOWHERE


class Foraging(Environment):
    """Level-based foraging.

    Load takes a food that is next to the agent (not diagonally) if the levels of all who load it in this step
    add up to its level. Two who would enter one cell both stay. A move against a border or a food, and Load
    with no food beside, count as None; so every action is always available.
    """

    rows: int = eqx.field(static=True, default=8)
    columns: int = eqx.field(static=True, default=8)
    agents: int = eqx.field(static=True, default=2)
    foods: int = eqx.field(static=True, default=2)
    sight: int | None = eqx.field(static=True, default=None)
    """How many cells away things are seen; None: all of the grid."""
    min_agent_level: Levels = eqx.field(static=True, default=1)
    max_agent_level: Levels = eqx.field(static=True, default=2)
    min_food_level: Levels = eqx.field(static=True, default=1)
    max_food_level: Levels | None = eqx.field(static=True, default=None)
    """None: the sum of the three lowest levels in the team (or of all, if they are fewer)."""
    force_coop: bool = eqx.field(static=True, default=True)
    """Whether every food is of its largest level: by default it then takes three agents, or all."""
    penalty: float = eqx.field(static=True, default=0.0)
    """What each agent pays for a Load that fails for want of levels."""
    normalise_reward: bool = eqx.field(static=True, default=True)
    """Whether all foods together are worth 1, each in proportion to its level. If not, a food is worth its
    level times the sum of the levels of those who load it."""
    horizon: int = eqx.field(static=True, default=50)

    def __check_init__(self) -> None:
        _check(self)
        # Building the Spec validates the horizon now rather than when something is first compiled.
        _ = self.spec

    @property
    def spec(self) -> Spec:
        """Rows, columns and levels as classes, of one kind each, of which class 0 is nothing."""
        sizes = (self.view, self.largest_agent, self.largest_food, self.horizon)
        return _spec((self.rows, self.columns), self.agents, self.foods, *sizes)

    @property
    def largest_agent(self) -> int:
        """The highest level of an agent."""
        return max(_each(self.max_agent_level, self.agents))

    @property
    def largest_food(self) -> int:
        """The highest level of a food."""
        if self.max_food_level is not None:
            return max(_each(self.max_food_level, self.foods))
        return sum(sorted(_each(self.max_agent_level, self.agents))[:LOWEST])

    @property
    def view(self) -> int:
        """How many cells away things are seen."""
        return max(self.rows, self.columns) if self.sight is None else self.sight

    def expert(self) -> Policy | None:
        from marco.environments.experts import LoadInTurn

        sees_all = self.view >= max(self.rows, self.columns) - 1
        return LoadInTurn(self.spec, self.rows, self.columns) if sees_all else None

    def draw_timestep(self, axes: Any, episode: Episode, t: int) -> None:
        from marco.environments.pictures import draw_foraging

        draw_foraging(self.spec, axes, episode, t)

    def initial(self, key: PRNGKeyArray) -> ForagingState:
        """Agents anywhere, apart; foods off the border and apart from each other, as far as they fit."""
        # One draw of everything: random bits are what a reset costs.
        cells = self.rows * self.columns
        key_places, key_levels = jax.random.split(key)
        noise = jax.random.uniform(key_places, (1 + self.foods, cells))
        _, places = jax.lax.top_k(noise[0], self.agents)
        key_agents, key_foods = jax.random.split(key_levels)
        levels = _draw_levels(
            key_agents, _each(self.min_agent_level, self.agents), _each(self.max_agent_level, self.agents)
        )
        foods = self._place_foods(noise[1:], places)
        food_levels = jnp.where(foods < cells, self._food_levels(key_foods, levels), 0)
        order = jnp.argsort(foods)
        where = jnp.where((foods < cells)[order, None], self._cell(foods[order]), NOWHERE)
        return ForagingState(self._cell(places), levels, where, food_levels[order])

    def transition(self, key: PRNGKeyArray, world: ForagingState, actions: Int[Array, " N"]) -> Transition:
        """Move, then load. Nothing here is random."""
        beside = _beside(world)
        actions = jnp.where((actions == LOAD) & ~beside.any(axis=1), NONE, actions)
        positions = self._move(world, actions)
        loading = beside & (actions == LOAD)[:, None]
        strength = (loading * world.levels[:, None]).sum(axis=0)
        tried = loading.any(axis=0)
        eaten = tried & (strength >= world.food_levels)
        share = 1.0 / jnp.maximum(world.food_levels.sum(), 1)
        worth = world.food_levels * (share if self.normalise_reward else strength.astype(jnp.float32))
        failed = (loading & ~eaten).sum().astype(jnp.float32)
        reward = jnp.where(eaten, worth, 0.0).sum() - self.penalty * failed
        foods = jnp.where(eaten[:, None], NOWHERE, world.foods)
        after = world._replace(positions=positions, foods=foods)
        return Transition(after, reward, ~after.present.any())

    def observe(self, world: ForagingState) -> Float[Array, "N O"]:
        """The foods in view row by row, then the agent itself, then the others in view, by number."""
        return jax.vmap(self._observe_one, (None, 0))(world, jnp.arange(self.agents))

    def available(self, world: ForagingState) -> Bool[Array, "N A"]:
        """Everything, always."""
        return jnp.ones((self.agents, len(ACTIONS)), bool)

    def central(self, world: ForagingState) -> Float[Array, " S"]:
        """Row, column and level of every agent and every food."""
        places = jnp.concatenate([world.positions, world.foods])
        levels = jnp.concatenate([world.levels, world.food_levels])
        return _encode(self.spec.state, jnp.column_stack([1 + places, levels]))

    def _cell(self, index: Int[Array, " cells"]) -> Int[Array, "cells 2"]:
        return jnp.stack(jnp.divmod(index, self.columns), axis=-1).astype(jnp.int32)

    def _place_foods(self, noise: Float[Array, "F cells"], agents: Int[Array, " N"]) -> Int[Array, " F"]:
        """A cell for each food, uniform among those that are left; the number of cells where none is."""
        inner = np.zeros((self.rows, self.columns), bool)
        inner[1:-1, 1:-1] = True
        cells = self._cell(jnp.arange(self.rows * self.columns))
        free, found = jnp.asarray(inner.ravel()).at[agents].set(False), []
        for of_food in noise:
            chosen = jnp.where(free.any(), jnp.argmax(jnp.where(free, of_food, -1.0)), free.size)
            apart = jnp.abs(cells - self._cell(chosen[None])[0])
            near = (apart.max(axis=-1) <= 1) | ((apart.min(axis=-1) == 0) & (apart.max(axis=-1) <= 2))
            free &= ~near
            found.append(chosen)
        return jnp.stack(found).astype(jnp.int32)

    def _food_levels(self, key: PRNGKeyArray, levels: Int[Array, " N"]) -> Int[Array, " F"]:
        if self.max_food_level is None:
            most = jnp.full(self.foods, jnp.sort(levels)[:LOWEST].sum())
        else:
            most = jnp.asarray(_each(self.max_food_level, self.foods))
        least = most if self.force_coop else jnp.asarray(_each(self.min_food_level, self.foods))
        return _draw_levels(key, least, most)

    def _move(self, world: ForagingState, actions: Int[Array, " N"]) -> Int[Array, "N 2"]:
        """Who enters a cell alone moves there.

        As in the package, a cell counts as free if whoever stands there tries to leave it: where that one
        then meets a third agent and stays, two stand in one cell.
        """
        size = jnp.array([self.rows, self.columns])
        there = world.positions + jnp.asarray(MOVES)[actions]
        blocked = ((there < 0) | (there >= size)).any(axis=-1) | _same(there, world.foods).any(axis=1)
        there = jnp.where(blocked[:, None], world.positions, there)
        alone = _same(there, there).sum(axis=1) == 1
        return jnp.where(alone[:, None], there, world.positions)

    def _observe_one(self, world: ForagingState, agent: Int[Array, ""]) -> Float[Array, " O"]:
        own, sight = world.positions[agent], self.view
        corner = jnp.maximum(own - sight, 0)
        foods, others = world.foods - corner, world.positions - corner
        food_seen = world.present & (jnp.abs(world.foods - own) <= sight).all(axis=-1)
        # As in the package: at the border others are seen as far as the whole width of the view.
        other_seen = ((others >= 0) & (others <= 2 * sight)).all(axis=-1)
        rank = jnp.where(jnp.arange(self.agents) == agent, -1, jnp.where(other_seen, 0, 1))
        rows = [
            _seen(foods, world.food_levels, food_seen, jnp.argsort(~food_seen)),
            _seen(others, world.levels, other_seen, jnp.argsort(rank)),
        ]
        return _encode(self.spec.agents[0].observation, jnp.concatenate(rows))


def _seen(
    places: Int[Array, "things 2"],
    levels: Int[Array, " things"],
    seen: Bool[Array, " things"],
    order: Int[Array, " things"],
) -> Int[Array, "things 3"]:
    """The classes of row, column and level, in an order; 0 of what is not seen."""
    classes = jnp.column_stack([1 + places, levels])
    return jnp.where(seen[:, None], classes, 0)[order]


def _encode(features: tuple[Feature, ...], classes: Int[Array, "things 3"]) -> Float[Array, " columns"]:
    """Row, column and level of each thing as columns."""
    columns = []
    for feature, index in zip(features, classes.ravel(), strict=True):
        assert isinstance(feature, Categorical)
        columns.append(feature.encode(index))
    return jnp.concatenate(columns)


def _beside(world: ForagingState) -> Bool[Array, "N F"]:
    """Which agents stand next to which foods."""
    apart = jnp.abs(world.positions[:, None] - world.foods[None]).sum(axis=-1)
    return (apart == 1) & world.present


def _same(places: Int[Array, "N 2"], others: Int[Array, "M 2"]) -> Bool[Array, "N M"]:
    return (places[:, None] == others[None]).all(axis=-1)


def _draw_levels(key: PRNGKeyArray, least: Any, most: Any) -> Int[Array, " things"]:
    """Uniform between the least and the most, after who has which of these was drawn."""
    key_order, key_level = jax.random.split(key)
    order = jax.random.permutation(key_order, len(least))
    least, most = jnp.asarray(least)[order], jnp.asarray(most)[order]
    return jax.random.randint(key_level, least.shape, least, most + 1).astype(jnp.int32)


def _each(levels: Levels, count: int) -> tuple[int, ...]:
    return levels if isinstance(levels, tuple) else (levels,) * count


@lru_cache
def _spec(
    grid: tuple[int, int], team: int, foods: int, sight: int, agent_level: int, food_level: int, horizon: int
) -> Spec:
    """An agent's own row has a class 0, too, which it never is in: so all rows are features of one kind."""

    def thing(name: str, size: tuple[int, ...], level: int) -> tuple[Feature, ...]:
        places = (
            Categorical(f"{name} {axis}", 1 + cells, True, labels=("-", *map(str, range(cells))))
            for axis, cells in zip(("row", "column"), size, strict=True)
        )
        return (*places, Categorical(f"{name} level", 1 + level, True))

    window = tuple(min(cells, 2 * sight + 1) for cells in grid)
    state = [thing(f"agent {i}", grid, agent_level) for i in range(team)]
    state += [thing(f"food {i}", grid, food_level) for i in range(foods)]
    seen = [thing(f"food {i}", window, food_level) for i in range(foods)]
    seen += [thing("self" if i == 0 else f"other {i - 1}", window, agent_level) for i in range(team)]
    observation = tuple(feature for features in seen for feature in features)
    actions = (ActionComponent("action", len(ACTIONS), ACTIONS),)
    return Spec(
        name="foraging",
        agents=tuple(Agent(str(i), actions, observation) for i in range(team)),
        state=tuple(feature for features in state for feature in features),
        horizon=horizon,
    )


def _check(env: Foraging) -> None:
    """Refuse what cannot be played, and what the package refuses only when it draws a start."""
    kinds: dict[str, Any] = dict.fromkeys(("rows", "columns", "agents", "foods"), int)
    kinds |= {"sight": int | None, "penalty": float, "max_food_level": Levels | None}
    kinds |= dict.fromkeys(("min_agent_level", "max_agent_level", "min_food_level"), Levels)
    check_types("foraging", {name: getattr(env, name) for name in kinds}, kinds)
    if min(env.rows, env.columns) < 3:
        raise ValueError(
            f"foraging needs at least 3 rows and 3 columns, since food is never at the border, got "
            f"rows={env.rows}, columns={env.columns}."
        )
    if not 1 <= env.agents <= env.rows * env.columns:
        raise ValueError(f"foraging needs from 1 to rows * columns agents, got agents={env.agents}.")
    if env.foods < 1 or (env.sight is not None and env.sight < 1):
        raise ValueError(
            f"foraging needs foods and sight of at least 1, got foods={env.foods}, sight={env.sight}."
        )
    _check_levels(env, "agent", env.agents, env.min_agent_level, env.max_agent_level)
    most = env.max_food_level
    if most is None:
        most = sum(sorted(_each(env.min_agent_level, env.agents))[:LOWEST])
    _check_levels(env, "food", env.foods, most if env.force_coop else env.min_food_level, most)
    things = env.agents + env.foods
    columns = things * (env.rows + env.columns) + things * max(env.largest_agent, env.largest_food)
    check_columns(f"foraging with {env.agents} agents and {env.foods} foods", columns)


def _check_levels(env: Foraging, kind: str, count: int, least: Levels, most: Levels) -> None:
    for levels in (least, most):
        if len(_each(levels, count)) != count:
            raise ValueError(f"foraging: give one {kind} level, or one for each of {count}, got {levels}.")
    pairs = list(zip(_each(least, count), _each(most, count), strict=True))
    if any(not 1 <= low <= high for low, high in pairs):
        raise ValueError(
            f"foraging: {kind} levels must be at least 1, and the least no more than the most, got "
            f"{least} and {most}."
        )
