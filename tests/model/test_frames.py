"""A state with a memory: what is remembered, how it moves down, and what of it is never learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.contract import check_contract
from helpers.hidden_worlds import MODEL, Echo, Ring
from marco.environments.base import ObservationFromState
from marco.model.certain import certain
from marco.model.components import layouts
from marco.model.fit import ModelPlan, fit_model
from marco.model.frames import begin, forget, present, remember, stacked, with_frames
from marco.model.inputs import Inputs
from marco.model.relations import Relations
from marco.model.rows import gather
from marco.model.stacked_view import Stacked
from marco.model.views import ViewedPolicy
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import play, rollout
from marco.types import (
    ActionComponent,
    Agent,
    Categorical,
    Continuous,
    Episode,
    Spec,
    binary,
    total_width,
)

STATE = (Continuous("place"), Categorical("colour", 3, low=0.25, high=0.75), binary("lit"))
MOVES = (ActionComponent("move", 2), ActionComponent("word", 3))
AGENTS = (Agent("a", MOVES, STATE), Agent("b", MOVES[:1], STATE[:1]))
SPEC = Spec("small", AGENTS, STATE, 5)


def small_episode():
    """Four timesteps: place 1, 2, 3, 4; the colour is 0, 1, 2, 2; lit at the second."""
    colour = np.full((4, 3), 0.25)
    colour[np.arange(4), [0, 1, 2, 2]] = 0.75
    state = np.concatenate([np.arange(1.0, 5.0)[:, None], colour, [[0], [1], [0], [0]]], -1)
    return Episode(
        observation=jnp.zeros((4, 2, 5)),
        state=jnp.asarray(state, jnp.float32),
        available=jnp.ones((4, 2, 6), bool),
        actions=jnp.array([[1, 0], [5, 1], [2, 1]]),
        reward=jnp.zeros(3),
        terminated=jnp.zeros(3, bool),
        truncated=jnp.zeros(3, bool),
        mask=jnp.ones(3, bool),
    )


def test_the_state_is_now_then_what_was_then_what_was_done():
    spec = with_frames(SPEC, 3)
    assert spec.frames == 3
    assert present(spec) == STATE
    # Three timesteps of 5 columns, two times the actions: move and word of a, move of b.
    assert spec.state_width == 3 * 5 + 2 * (2 + 3 + 2)
    assert [feature.name for feature in spec.state[3:6]] == ["1 ago: place", "1 ago: colour", "1 ago: lit"]
    assert spec.state[4] == Categorical("1 ago: colour", 3, low=0.25, high=0.75)
    assert [feature.name for feature in spec.state[9:12]] == [
        "1 ago: a move",
        "1 ago: a word",
        "1 ago: b move",
    ]
    assert with_frames(SPEC, 1) == SPEC


def test_an_episode_is_stacked_as_worked_by_hand():
    rows = np.asarray(stacked(with_frames(SPEC, 3), small_episode()))
    first, second = [1.0, 0.75, 0.25, 0.25, 0.0], [2.0, 0.25, 0.75, 0.25, 1.0]
    third = [3.0, 0.25, 0.25, 0.75, 0.0]
    nobody = [0.0] * 7
    # Action 1 of a is move 1 and word 0, action 5 is move 1 and word 2.
    one, five = [0.0, 1, 1, 0, 0, 1, 0], [0.0, 1, 0, 0, 1, 0, 1]
    np.testing.assert_array_equal(rows[0], [*first, *first, *first, *nobody, *nobody])
    np.testing.assert_array_equal(rows[1], [*second, *first, *first, *one, *nobody])
    np.testing.assert_array_equal(rows[2], [*third, *second, *first, *five, *one])


def test_a_step_remembers_what_a_stacked_episode_holds():
    spec, episode = with_frames(SPEC, 4), small_episode()
    rows, memory = stacked(spec, episode), begin(spec, episode.state[0])
    np.testing.assert_array_equal(memory, rows[0])
    for t in range(3):
        memory = remember(spec, memory, episode.actions[t], episode.state[t + 1])
        np.testing.assert_array_equal(memory, rows[t + 1])


def test_to_forget_is_to_have_stacked_less_in_the_same_columns():
    long, short = with_frames(SPEC, 4), with_frames(SPEC, 2)
    rows = forget(long, stacked(long, small_episode()), 2)
    less = stacked(short, small_episode())
    np.testing.assert_array_equal(rows[:, :10], less[:, :10])
    np.testing.assert_array_equal(rows[:, 20:27], less[:, 10:])
    np.testing.assert_array_equal(rows[:, 10:20], np.tile(less[:, 5:10], 2))
    assert not rows[:, 27:].any()
    whole = stacked(long, small_episode())
    np.testing.assert_array_equal(forget(long, whole, 4), whole)
    np.testing.assert_array_equal(forget(long, whole, 1), begin(long, small_episode().state))


def test_the_networks_predict_only_what_is_now():
    spec = with_frames(SPEC, 3)
    layout = layouts(spec, continuous_reward=False, changes=True, relations=True)["dynamics"]
    assert layout.features == STATE
    inputs = Inputs(spec, distances=True, relations=True)
    s, a = stacked(spec, small_episode())[1], jnp.array([5, 1])
    before, after = inputs.before_step(s, a), inputs.after_step(s, a, s)
    assert before.shape == (len(inputs.numeric("dynamics")),)
    # What is past in s' is known of s: beside (s, a) the 5 columns of now, and which of 2 classes changed.
    assert after.shape == (len(inputs.numeric("reward")),) == (before.size + 5 + 2,)
    # Classes are 0 or 1; the place was 1 and is 2, and before the start it did not move.
    np.testing.assert_array_equal(before[:15], [2, 0, 1, 0, 1, -1, 1, 0, 0, 0, 0, 1, 0, 0, 0])


def test_the_change_of_a_class_is_an_input_of_its_own():
    features = tuple(Categorical(name, 6) for name in ("here", "1 ago: here", "2 ago: here"))
    relations = Relations(features, frames=3)
    assert relations.pairs.tolist() == [[0, 1], [1, 2]]
    place = np.eye(6, dtype=np.float32)
    row = jnp.asarray(np.concatenate([place[4], place[3], place[5]]))
    # From 3 to 4 is +1, from 5 to 3 is -2; the columns are -2 to 2.
    np.testing.assert_array_equal(relations(row), [0, 0, 0, 1, 0, 1, 0, 0, 0, 0])


def test_only_features_of_now_can_be_certain():
    """A light that is off in one episode and on in the other, beside one that blinks; 60 steps of each."""
    agents = (Agent("a", MOVES, (Continuous("place"),)), Agent("b", MOVES[:1], (Continuous("place"),)))
    spec = with_frames(Spec("lights", agents, (binary("stays"), binary("blinks")), 60), 3)
    stays, blinks = jnp.arange(2.0) * jnp.ones((61, 1)), jnp.arange(61.0)[:, None] % 2 * jnp.ones(2)
    episode = Episode(
        observation=jnp.zeros((61, 2, 2, 1)),
        state=jnp.stack([stays, blinks], -1),
        available=jnp.ones((61, 2, 2, 6), bool),
        actions=jnp.zeros((60, 2, 2), jnp.int32),
        reward=jnp.zeros((60, 2)),
        terminated=jnp.zeros((60, 2), bool),
        truncated=jnp.zeros((60, 2), bool),
        mask=jnp.ones((60, 2), bool),
    )
    data = gather(spec, episode._replace(state=stacked(spec, episode)))
    assert certain(spec, [data]).dynamics == (0,)


def test_known_functions_of_the_state_are_those_of_now():
    view, spec = Stacked(2), with_frames(SPEC, 2)
    rows = stacked(spec, small_episode())
    given = {
        "observation": ObservationFromState(SPEC, (0, 1, 2, 3, 4, 0)),
        "dynamics": lambda key, s, a: s + 1.0,
        "start": lambda key: jnp.arange(5.0),
        "reward": lambda s, a, next_s: next_s[0] - s[0],
        "available": lambda s: jnp.full((2, 6), s[0] > 2.0),
    }
    known, key, a = view.known(spec, given), jax.random.key(0), jnp.array([5, 1])
    shown = known["observation"](key, rows[2], a)
    np.testing.assert_array_equal(shown[0], rows[2, :5])
    np.testing.assert_array_equal(shown[1, :1], rows[2, :1])
    after = known["dynamics"](key, rows[1], a)
    np.testing.assert_array_equal(after, [*(rows[1, :5] + 1.0), *rows[1, :5], 0, 1, 0, 0, 1, 0, 1])
    np.testing.assert_array_equal(known["start"](key), [*range(5), *range(5), *[0] * 7])
    assert known["reward"](rows[1], a, rows[2]) == 1.0
    assert not known["available"](rows[1]).any()
    assert view.known(spec, given) == known  # nothing is compiled twice


class _Recorder(Policy):
    """Takes its action by the state it is shown: whether the light was on a step ago, if anybody acted."""

    def start(self):
        return jnp.int32(0)

    def __call__(self, memory, timestep):
        was_lit = (timestep.state[2] > 0.5) & timestep.state[4:].any()
        return memory + 1, jax.nn.one_hot(jnp.full(2, was_lit, int), 2)


def test_a_policy_of_the_stacked_state_plays_in_the_true_environment():
    env = Echo(horizon=8)
    played = play(jax.random.key(0), env, ViewedPolicy(_Recorder(), Stacked(2), env.spec))
    light = np.asarray(played.observation)[:, 0, 0]
    np.testing.assert_array_equal(played.actions[:, 0], [0, *light[:-2]])
    # It answers the light of the step before, as the reward asks for.
    assert played.undiscounted_return == 8.0


def test_a_view_with_a_memory_is_a_static_argument():
    assert Stacked(2) == Stacked(2) != Stacked(4)
    assert hash(Stacked(2)) == hash(Stacked(2))


def never(s, a, next_s):
    return False


def everything(s):
    return jnp.ones((2, 2), bool)


@pytest.fixture(scope="module")
def learned():
    """The runners, whose way is hidden, by a memory of two timesteps: 800 steps."""
    env = Ring(hidden=True)
    episodes = _episodes(env, 100)
    known = {**env.known, "termination": never, "available": everything}
    plan = ModelPlan(Stacked(2), MODEL, env.spec, known=tuple(known.items()))
    data = plan.gather(episodes)
    plan = plan.with_certain([data])
    return env, episodes, plan, *fit_model(jax.random.key(0), plan, data)


def _episodes(env, count, first=0):
    keys = [jax.random.key(first + number) for number in range(count)]
    played = [play(key, env, RandomPolicy()) for key in keys]
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves], 1), *played)


def test_a_learned_environment_with_a_memory_keeps_the_contract(learned):
    _, _, _, world, _ = learned
    assert world.spec == with_frames(Ring(hidden=True).spec, 2)
    check_contract(world, episodes=16, op_by_op=False)


def test_imagined_episodes_remember_what_they_showed(learned):
    env, _, _, world, _ = learned
    keys = jax.random.split(jax.random.key(1), 20)
    played = jax.jit(jax.vmap(rollout, (0, None, None), 1))(keys, world, RandomPolicy())
    now = total_width(env.spec.state)
    np.testing.assert_array_equal(played.state[1:, :, now : 2 * now], played.state[:-1, :, :now])
    np.testing.assert_array_equal(played.observation.reshape(9, 20, -1), played.state[..., :now])
    taken = jax.nn.one_hot(played.actions, 2).reshape(8, 20, 4)
    np.testing.assert_array_equal(played.state[1:, :, 2 * now :], taken)


def test_with_a_memory_of_two_the_hidden_way_is_known(learned):
    """The probability of the true next places in fresh episodes, after the first step.

    By what is seen now it is 1/4; the way is drawn at the start, and told by two places in a row.
    """
    env, _, plan, world, _ = learned
    fresh = _episodes(env, 50, first=1_000)
    (viewed,) = plan.view.episodes(env.spec, fresh)
    steps = (viewed.state[1:-1], fresh.actions[1:], viewed.state[2:])
    assert float(jnp.exp(jnp.log(_probability(world.model, *map(jnp.asarray, steps))).mean())) > 0.9


@jax.jit
def _probability(model, s, a, next_s):
    def one(s, a, next_s):
        classes = model.dynamics.layout.split(next_s).classes
        said = model.dynamics.predict(model.inputs.before_step(s, a), classes).log_probability
        return jnp.exp(jnp.take_along_axis(said, classes[None, :, None], -1)[..., 0].sum(-1)).mean()

    return jax.vmap(jax.vmap(one))(s, a, next_s)
