"""Level-based foraging is that of the package lbforaging, step by step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lbforaging.foraging import ForagingEnv
from scipy.stats import chi2_contingency

from marco.environments.foraging import (
    LOAD,
    MOVES,
    NONE,
    NORTH,
    NOWHERE,
    SOUTH,
    WEST,
    Foraging,
    ForagingState,
)
from marco.environments.registry import make
from marco.evaluation import evaluate
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import rollout, rollouts
from marco.types import blocks

SETTINGS = {
    "8x8-2p-2f-coop": {},
    "8x8-2p-2f-coop-2s": {"sight": 2},
    "5x5, crowded": {"rows": 5, "columns": 5, "agents": 6, "foods": 2, "sight": 1, "force_coop": False},
    "penalty, not normalised": {
        **{"rows": 6, "columns": 6, "agents": 4, "foods": 3, "sight": 3, "force_coop": False},
        **{"penalty": 0.1, "normalise_reward": False, "max_agent_level": 3, "horizon": 30},
    },
    "6x9, levels one by one": {
        **{"rows": 6, "columns": 9, "agents": 3, "foods": 2, "sight": 2, "force_coop": False},
        **{"min_agent_level": (1, 1, 2), "max_agent_level": (1, 2, 4), "max_food_level": (2, 5)},
    },
}


def package(env, world):
    """The same environment of the package, in the same state."""
    other = ForagingEnv(
        players=env.agents,
        min_player_level=env.min_agent_level,
        max_player_level=env.max_agent_level,
        min_food_level=env.min_food_level,
        max_food_level=env.max_food_level,
        field_size=(env.rows, env.columns),
        max_num_food=env.foods,
        sight=env.view,
        max_episode_steps=env.horizon,
        force_coop=env.force_coop,
        normalize_reward=env.normalise_reward,
        penalty=env.penalty,
    )
    box = other.observation_space[0]
    if env.rows != env.columns:  # the package confuses the two sides in its bounds, and refuses its own rows
        box.high[:] = max(env.rows, env.columns)
    other.reset(seed=0)
    place(other, world)
    return other


def place(other, world):
    other.field[:] = 0
    for (row, column), level, there in zip(world.foods, world.food_levels, world.present, strict=True):
        if there:
            other.field[row, column] = level
    other._food_spawned = np.asarray(world.food_levels).sum()
    for player, position, level in zip(other.players, world.positions, world.levels, strict=True):
        player.position, player.level = tuple(map(int, position)), int(level)
    other.current_step, other._game_over = 0, False
    other._gen_valid_moves()


def as_package(env, observation):
    """Our columns as the package's vectors: -1, -1, 0 for what is not seen."""
    features = env.spec.agents[0].observation
    classes = [
        feature.decode(jnp.asarray(observation[..., block]))
        for feature, block in zip(features, blocks(features), strict=True)
    ]
    return np.stack(classes, axis=-1) - np.tile([1, 1, 0], env.foods + env.agents)


class Hungry(Policy):
    """Half of the time at random; else towards the first food, by the central state, or Load beside it."""

    env: Foraging = eqx.field(static=True)

    def start(self):
        return ()

    def __call__(self, memory, timestep):
        features = self.env.spec.state
        classes = [f.decode(timestep.state[at]) for f, at in zip(features, blocks(features), strict=True)]
        places = jnp.stack(classes).reshape(-1, 3)[:, :2]
        agents, foods = places[: self.env.agents], places[self.env.agents :]
        food = foods[jnp.argmax(foods[:, 0] > 0)]
        left = agents[:, None] + jnp.asarray(MOVES) - food
        best = jnp.argmin(jnp.abs(left).sum(-1), axis=-1)
        beside = jnp.abs(agents - food).sum(-1) == 1
        wanted = jax.nn.one_hot(jnp.where(beside, LOAD, best), 6)
        return memory, 0.5 * wanted + 0.5 / 6


@pytest.mark.parametrize("name", SETTINGS)
def test_every_step_is_the_packages(name):
    """Positions, foods, rewards, observations and ends of 40 whole episodes."""
    env = Foraging(**SETTINGS[name])
    keys = jax.random.split(jax.random.key(0), 40)
    starts = jax.vmap(lambda key: env.initial(jax.random.split(key)[0]))(keys)
    played = jax.tree.map(np.asarray, jax.jit(jax.vmap(rollout, (0, None, None), 1))(keys, env, Hungry(env)))
    shown, state = as_package(env, played.observation), places_in(env, played.state)
    eaten = failed = 0
    for index in range(40):
        other = package(env, jax.tree.map(lambda leaf, index=index: leaf[index], starts))
        np.testing.assert_array_equal(shown[0, index], other.test_make_gym_obs())
        for t in range(played.mask[:, index].sum()):
            observations, rewards, done, _, _ = other.step(played.actions[t, index])
            agents, foods = np.split(state[t + 1, index], [env.agents])
            np.testing.assert_array_equal(agents, [player.position for player in other.players])
            np.testing.assert_array_equal(foods[foods[:, 0] >= 0], np.argwhere(other.field))
            assert played.reward[t, index] == pytest.approx(sum(rewards), abs=1e-5)
            np.testing.assert_array_equal(shown[t + 1, index], observations)
            assert (played.terminated[t, index] or played.truncated[t, index]) == done
            assert played.terminated[t, index] == (other.field.sum() == 0)
            eaten, failed = eaten + (sum(rewards) > 0), failed + (sum(rewards) < 0)
    assert eaten > 30
    assert failed > 10 or not env.penalty


def places_in(env, state):
    """The rows and columns of all things in the columns of the state."""
    features = env.spec.state
    classes = [
        f.decode(jnp.asarray(state[..., at])) for f, at in zip(features, blocks(features), strict=True)
    ]
    return np.stack(classes, axis=-1).reshape(*state.shape[:-1], -1, 3)[..., :2] - 1


def test_two_may_stand_in_one_cell_as_in_the_package():
    """0 leaves for a cell that 1 wants too, and stays; 2 takes the cell that 0 seemed to leave."""
    env = Foraging(rows=5, columns=5, agents=3, foods=1)
    world = ForagingState(
        jnp.array([[2, 0], [0, 0], [3, 0]]), jnp.ones(3, int), jnp.array([[2, 3]]), jnp.array([3])
    )
    actions = [NORTH, SOUTH, NORTH]
    other = package(env, world)
    other.step(actions)
    moved = env.transition(jax.random.key(0), world, jnp.array(actions)).world.positions
    assert moved.tolist() == [[2, 0], [0, 0], [2, 0]] == [list(one.position) for one in other.players]


def test_a_food_is_worth_its_share_and_takes_enough_levels():
    """Levels 1 and 2 beside a food of 3, of 5 in all: together they earn 3/5, alone the second pays."""
    env = Foraging(penalty=0.25, force_coop=False, max_food_level=3)
    world = ForagingState(
        jnp.array([[3, 2], [3, 4]]), jnp.array([1, 2]), jnp.array([[3, 3], [6, 6]]), jnp.array([3, 2])
    )

    def earned(*actions):
        return env.transition(jax.random.key(0), world, jnp.array(actions))

    assert float(earned(LOAD, LOAD).reward) == pytest.approx(3 / 5)
    assert earned(LOAD, LOAD).world.foods.tolist() == [[NOWHERE, NOWHERE], [6, 6]]
    assert float(earned(NONE, LOAD).reward) == -0.25
    assert float(earned(WEST, WEST).reward) == 0.0
    assert not earned(LOAD, LOAD).terminated


def test_starts_are_drawn_as_in_the_package():
    """On 5x5 cells food lies on the inner 9; one in the middle leaves no place for a second one."""
    env, count = Foraging(rows=5, columns=5, agents=2, foods=2, force_coop=False), 4_000
    worlds = jax.vmap(env.initial)(jax.random.split(jax.random.key(0), count))
    ours = [
        (*sorted(cell[0] * 5 + cell[1] for cell in foods if cell[0] >= 0), *levels)
        for foods, levels in zip(
            worlds.foods.tolist(), np.sort(np.asarray(worlds.food_levels)).tolist(), strict=True
        )
    ]
    theirs = []
    other = package(env, jax.tree.map(lambda leaf: leaf[0], worlds))
    for _ in range(count):
        for player in other.players:  # the package keeps off the cells of the episode before
            player.position = None
        other.reset()
        cells = np.flatnonzero(other.field)
        levels = np.sort(np.pad(other.field.ravel()[cells], (0, 2 - len(cells))))
        theirs.append((*cells.tolist(), *levels.tolist()))
    kinds = sorted({*ours, *theirs})
    counts = np.array([[side.count(kind) for kind in kinds] for side in (ours, theirs)])
    common = counts.sum(0) > 20
    assert chi2_contingency(counts[:, common]).pvalue > 0.001
    assert (worlds.food_levels == 0).any(axis=1).mean() == pytest.approx(0.12, abs=0.03)
    apart = np.abs(np.asarray(worlds.positions[:, 0] - worlds.positions[:, 1])).sum(-1)
    assert (apart > 0).all()


def test_the_state_has_the_level_of_what_was_eaten():
    """By these levels the rewards that are left are normalised: without them the state were not Markov."""
    env = Foraging(force_coop=False)
    played = rollouts(jax.random.key(0), env, env.expert(), 64)
    names = [feature.name for feature in env.spec.state]
    at = {name: blocks(env.spec.state)[names.index(name)] for name in ("food 0 row", "food 0 level")}
    state = np.asarray(played.state)
    gone = state[..., at["food 0 row"]].sum(-1) == 0
    assert gone.any()
    np.testing.assert_array_equal(state[..., at["food 0 level"]][gone].sum(-1), 1.0)


def test_the_hand_written_team_eats_everything():
    """So the most that there is, 1, can be had, but for a thousandth."""
    env = make("foraging")
    assert 0.999 < evaluate(env, env.expert(), 2_000, seed=0).mean <= 1.0 + 1e-6
    assert 0.0 < evaluate(env, RandomPolicy(), 2_000, seed=0).mean < 0.1
    assert make("foraging", sight=2).expert() is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 2}, "at least 3 rows and 3 columns, since food is never at the border, got rows=2"),
        ({"agents": 65}, "from 1 to rows . columns agents, got agents=65"),
        ({"sight": 0}, "foods and sight of at least 1, got foods=2, sight=0"),
        ({"max_agent_level": (1, 2, 3)}, r"one agent level, or one for each of 2, got \(1, 2, 3\)"),
        ({"min_agent_level": 3}, "agent levels must be at least 1, and the least no more than the most"),
        ({"min_food_level": 3, "force_coop": False}, "food levels must be .*, got 3 and 2"),
        ({"rows": 10**6}, "foraging with 2 agents and 2 foods has a state of"),
        ({"sight": 2.5}, "foraging: sight must be a whole number or None, got 2.5"),
    ],
)
def test_what_cannot_be_played_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make("foraging", **settings)
