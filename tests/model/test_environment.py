"""The learned model keeps the contract of every world, with any weights, and shows nothing data did not."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.contract import check_contract
from helpers.toys import (
    CAPACITY,
    SETTINGS,
    fit_one,
    noisy_component,
    noisy_model,
    one_step_episodes,
    small,
    table,
)
from marco.algorithm.exploration import ExplorationEnvironment
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.learners.parallel import evaluate_all
from marco.model.components import Known, Model
from marco.model.config import ModelConfig
from marco.model.environment import LearnedEnvironment
from marco.model.inputs import Inputs
from marco.model.rows import gather
from marco.policies.base import RandomPolicy
from marco.rollout import rollout, rollouts, rollouts_by_member
from marco.types import blocks, concatenate_observations, split_observations

FACTORED = ModelConfig(*[small("factored")] * 5, SETTINGS.training)


def first_states(env, count=5):
    return np.asarray(rollouts(jax.random.key(0), env, RandomPolicy(), count).state[0])


def test_the_learned_table_of_unequal_agents_keeps_the_contract(fitted):
    check_contract(LearnedEnvironment(fitted.model), episodes=8, op_by_op=False)


def test_a_switch_of_pure_chance_keeps_the_contract():
    """Whatever the weights are: here random, the available actions too."""
    env = Switch()
    over = Known(lambda s, a, following: jnp.any(a == 1))
    model = noisy_model(0, env.spec, first_states(env), FACTORED, termination=over)
    check_contract(LearnedEnvironment(model, "episode"), episodes=8)


@pytest.fixture(scope="module")
def reference_world():
    """Random weights, small ones so that numbers stay in range; landmarks are held never to vary."""
    env = Reference(horizon=4)
    everything = Known(lambda s: jnp.ones((2, 50), bool))
    never = Known(lambda s, a, following: jnp.bool_(False))
    model = noisy_model(
        0, env.spec, first_states(env), FACTORED, True, 0.1, available=everything, termination=never
    )
    moving = jnp.where(jnp.arange(14) < 8, 0.1, 0.0)
    return LearnedEnvironment(eqx.tree_at(lambda m: m.dynamics.values.scale, model, moving))


def test_a_reference_of_pure_chance_keeps_the_contract(reference_world):
    """A state of numbers and classes."""
    check_contract(reference_world, episodes=8, op_by_op=False)


def test_numbers_that_never_vary_stay_exactly_what_they_were(reference_world):
    """The landmarks of reference, over a whole episode; the positions move."""
    spec = reference_world.spec
    state = np.asarray(jax.jit(rollout)(jax.random.key(1), reference_world, RandomPolicy()).state)
    where = dict(zip((f.name for f in spec.state), blocks(spec.state), strict=True))
    for landmark in range(3):
        own = state[:, where[f"landmark {landmark}"]]
        np.testing.assert_array_equal(own, np.broadcast_to(own[:1], own.shape))
    assert (state[1:, where["position 0"]] != state[:-1, where["position 0"]]).all()


def test_one_member_is_kept_for_an_episode_or_drawn_at_every_step(fitted):
    def members(per):
        env = LearnedEnvironment(fitted.model, per)

        def one(key):
            state, _ = env.reset(key)
            after, _ = env.step(key, state, jnp.zeros(2, jnp.int32))
            return state.world.member, after.world.member

        return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 8))

    kept, drawn = members("episode"), members("step")
    assert (kept[0] == kept[1]).all()
    assert (drawn[0] != drawn[1]).all()
    assert len(np.unique(kept[0])) == 8


def paid_by_member(fitted, resample, members=3):
    """All is known but the reward, and member k always pays k."""
    known = {
        "dynamics": Known(lambda key, s, a: s),
        "observation": Known(lambda key, s, previous: jnp.zeros((2, 3))),
        "termination": Known(lambda s, a, following: jnp.bool_(False)),
        "available": Known(lambda s: jnp.asarray(fitted.env.spec.actions_exist)),
    }
    rewards = noisy_component(0, "reward", fitted.env.spec, replace(small(), members=members), noise=0.0)
    paid = jnp.zeros((members, 1, 16)).at[jnp.arange(members), 0, jnp.arange(members)].set(99.0)
    rewards = eqx.tree_at(lambda part: part.members.linear.bias, rewards, paid)
    model = Model(
        reward=rewards,
        **known,
        known_start=Known(lambda key: jnp.eye(3)[0]),
        reward_values=jnp.arange(16.0),
        starts=jnp.eye(3),
        num_starts=jnp.int32(3),
        inputs=Inputs(fitted.env.spec, True),
    )
    return LearnedEnvironment(model, resample)


def test_episodes_are_shared_out_among_the_members(fitted):
    """Eight episodes among three members; each is played for an episode, or drawn anew at every step."""
    rewards = rollouts(jax.random.key(0), paid_by_member(fitted, "episode"), RandomPolicy(), 8).reward
    assert (rewards == rewards[0]).all()
    np.testing.assert_array_equal(np.sort(rewards[0]), [0, 0, 0, 1, 1, 1, 2, 2])
    few = paid_by_member(fitted, "episode", members=5)
    keys = jax.random.split(jax.random.key(2), 40)
    seven = jax.vmap(lambda key: rollouts(key, few, RandomPolicy(), 7).reward[0])(keys)
    assert all(set(np.asarray(one, int)) == set(range(5)) for one in seven)
    single = jax.vmap(lambda key: rollouts(key, few, RandomPolicy(), 1).reward[0, 0])(keys)
    assert set(np.asarray(single, int)) == set(range(5))
    env, keys = paid_by_member(fitted, "step"), jax.random.split(jax.random.key(1), 300)
    drawn = np.asarray(jax.vmap(lambda key: rollouts(key, env, RandomPolicy(), 8).reward)(keys), int)
    for episode in range(8):
        before, after = drawn[:, 0, episode], drawn[:, 1, episode]
        pairs = np.bincount(3 * before + after, minlength=9) / 300
        np.testing.assert_allclose(pairs, 1 / 9, atol=4 * np.sqrt(1 / 9 * 8 / 9 / 300))


def test_episodes_by_member_say_who_played_them_however_members_are_drawn(fitted):
    """Member m pays m for a step: an episode of member m earns m at each of its steps."""
    env = paid_by_member(fitted, "step")
    played, members = rollouts_by_member(jax.random.key(0), env, RandomPolicy(), 8)
    assert members == 3
    for b in range(8):
        paid = np.asarray(played.reward)[np.asarray(played.mask)[:, b], b]
        assert set(paid.tolist()) == {float(b % 3)}


def test_the_value_of_a_team_in_each_member(fitted):
    env = paid_by_member(fitted, "step")
    envs, policy = jax.tree.map(lambda leaf: leaf[None], env), RandomPolicy()
    estimate = evaluate_all(jax.random.split(jax.random.key(0), (1, 1)), policy, envs)
    low, middle, high = np.asarray(estimate.by_member)[0, 0].tolist()
    assert low == 0.0
    assert 0.0 < middle < high
    assert float(estimate.mean[0, 0]) == pytest.approx((low + middle + high) / 3, rel=0.01)


def test_shared_out_episodes_have_the_distribution_of_episodes_played_alone(fitted):
    """Next states, rewards and ends of 4,000 episodes each, within four standard errors."""
    env, count = LearnedEnvironment(fitted.model), 4_000
    shared = rollouts(jax.random.key(0), env, RandomPolicy(), count)
    keys = jax.random.split(jax.random.key(1), count)
    alone = jax.jit(jax.vmap(rollout, (0, None, None), 1))(keys, env, RandomPolicy())
    for name in ("state", "observation", "available", "reward", "terminated", "mask"):
        one, other = (np.asarray(getattr(batch, name), float) for batch in (shared, alone))
        error = np.sqrt((one.var(1) + other.var(1)) / count)
        assert (np.abs(one.mean(1) - other.mean(1)) <= 4.5 * error + 1e-6).all(), name


@pytest.mark.parametrize(("members", "shared"), [((4, 2), 4), ((3, 2), None), ((1, 1), None)])
def test_smaller_ensembles_are_lent_evenly_or_not_at_all(members, shared):
    env, (most, fewer) = Switch(), members
    settings = replace(
        FACTORED,
        **{
            name: replace(small("factored"), members=count)
            for name, count in (
                ("dynamics", most),
                ("reward", fewer),
                ("observation", 1),
                ("termination", fewer),
            )
        },
    )
    model = noisy_model(0, env.spec, first_states(env), settings)
    parts = LearnedEnvironment(model).by_member()
    assert (parts and parts.members) == shared
    if shared:
        lent = parts.apart.model.reward.members.categorical.layers[0].weight
        assert lent.shape[:2] == (4, 1)
        np.testing.assert_array_equal(lent[0], lent[1])
        np.testing.assert_array_equal(lent[3, 0], model.reward.members.categorical.layers[0].weight[1])
        assert parts.apart.model.observation.members.categorical.layers[0].weight is None


def test_exploration_is_paid_by_the_disagreement_of_all_members_though_one_plays(fitted):
    env = ExplorationEnvironment(LearnedEnvironment(fitted.model, "episode"), jnp.float32(1.0))
    parts = env.by_member()
    assert parts.members == 2
    plain = replace(env, lam=jnp.float32(0.0))
    paid, unpaid = (rollouts(jax.random.key(0), one, RandomPolicy(), 6) for one in (env, plain))
    np.testing.assert_array_equal(paid.state, unpaid.state)
    bonus = np.asarray(paid.reward - unpaid.reward)
    assert (bonus[np.asarray(paid.mask)] > 0.0).all()


def test_the_member_is_chosen_by_its_share_of_the_numbers_from_0_to_1(fitted):
    chosen = [int(fitted.model.dynamics._index(jnp.float32(m))) for m in (0.0, 0.49, 0.5, 0.999, 1.0)]
    assert chosen == [0, 0, 1, 1, 1]


def test_starts_come_only_from_data(fitted):
    """Padding is all zeros, no state at all; the shares are those of the data within four deviations."""
    n = 4000
    keys = jax.random.split(jax.random.key(0), n)
    drawn = np.asarray(jax.jit(jax.vmap(fitted.model.draw_start))(keys))
    assert (drawn.sum(-1) == 1.0).all()
    shares = np.asarray(fitted.data.starts[:1000]).mean(0)
    np.testing.assert_allclose(drawn.mean(0), shares, atol=4 * np.sqrt(0.25 / n))
    assert drawn[:, 2].sum() == 0.0


def test_no_action_is_ever_without_an_alternative_nor_one_that_does_not_exist():
    """The likeliest is available if none is likely, whatever the weights: 20 random models."""
    spec = table().spec
    states = jnp.eye(3)

    @jax.jit
    def masks(model):
        return jax.vmap(model.available_actions)(states)

    for seed in range(20):
        mask = np.asarray(masks(noisy_model(seed, spec, np.eye(3, dtype=np.float32))))
        assert mask.any(-1).all()
        assert not (mask & ~spec.actions_exist).any()


def test_observations_of_unequal_agents_lie_side_by_side_without_padding():
    """Three columns of agent 0, two of agent 1: put together and taken apart again."""
    spec = table().spec
    observation = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 0.0]])
    assert concatenate_observations(spec, observation).tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(
        split_observations(spec, concatenate_observations(spec, observation)), observation
    )
    batch = jnp.stack([observation, 2 * observation])
    np.testing.assert_array_equal(split_observations(spec, concatenate_observations(spec, batch)), batch)


def test_nobodys_action_shows_no_column_and_an_action_one_per_factor():
    """Two agents of reference, 5 moves and 10 words each: action 7 is move 2 and word 1."""
    inputs = Inputs(Reference().spec, distances=False)
    s = jnp.zeros(40)
    nobody = inputs.before_step(s, jnp.array([-1, -1], jnp.int32))[40:]
    acting = inputs.before_step(s, jnp.array([7, 0], jnp.int32))[40:]
    assert nobody.shape == (30,)
    assert not nobody.any()
    assert np.flatnonzero(acting).tolist() == [2, 5 + 1, 15 + 0, 15 + 5]


def test_distances_are_those_between_features_of_two_numbers():
    """Seven places and speeds of reference: 21 distances, the first between position and velocity 0."""
    inputs = Inputs(Reference().spec)
    s = jnp.zeros(40).at[:2].set(jnp.array([3.0, 4.0]))
    state = inputs.state(s)
    assert state.shape == (40 + 21,)
    assert state[40:].tolist() == [5.0] * 6 + [0.0] * 15
    assert len(inputs.numeric("reward")) == 61 + 30 + 61
    assert sum(inputs.numeric("available")) == 14 + 21


@pytest.fixture(scope="module")
def switch_model():
    """Dynamics learned from about 500 samples of random play, the rest known."""
    env = Switch()
    data = gather(env.spec, rollouts(jax.random.key(0), env, RandomPolicy(), 150))
    known = dict.fromkeys(("reward", "observation", "termination", "available"), lambda *_: 0.0)
    return data, *fit_one(jax.random.key(1), env.spec, data, SETTINGS, known)


def test_who_enters_next_stays_pure_chance(switch_model):
    """In all 24 states and for every action of the visitor the mixture is near 1/3.

    Nothing tells who enters: all n rows that a member trained on tell of the same three numbers, whose
    empirical shares are off by sqrt((3 - 1) / n) / 2 in expectation, in total variation, and by more than
    sqrt(ln(1000) / 2 n) over that with a probability of 1/1000. A table of pairs would be off by far more.
    """
    data, model, reports = switch_model
    trained = int(data.num_steps) - int(reports["dynamics"].held_out.sum(-1).max())
    bound = 0.5 * np.sqrt(2 / trained) + np.sqrt(np.log(1000) / (2 * trained))
    states = np.unique(np.asarray(data.steps.state[: int(data.num_steps)]), axis=0)
    actions = jnp.asarray(np.eye(3, dtype=np.int32)[states[:, :3].argmax(-1)])
    entering = np.zeros((0, 3))
    for action in range(4):
        x = jax.vmap(model.inputs.before_step)(jnp.asarray(states), action * actions)
        said = jax.jit(jax.vmap(lambda x: model.dynamics.predict(x, jnp.zeros(5, jnp.int32))))(x)
        entering = np.concatenate([entering, np.exp(said.log_probability[:, :, 0, :3]).mean(1)])
    variation = 0.5 * np.abs(entering - 1 / 3).sum(-1)
    assert variation.mean() < bound


def test_the_light_is_learned_to_be_certain(switch_model):
    """Given who enters, all else is: the mean probability of a wrong light or visit is below 1/20.

    In n = 350 rows no exception was seen, which leaves room for 3/n at 95 %; the rest is for the training.
    """
    data, model, _ = switch_model
    count = int(data.num_steps)
    steps = data.steps
    x = jax.vmap(model.inputs.before_step)(steps.state[:count], steps.actions[:count])
    classes = model.dynamics.layout.split(steps.next_state[:count]).classes
    said = jax.jit(jax.vmap(model.dynamics.predict))(x, classes).log_probability
    right = np.take_along_axis(np.asarray(said), np.asarray(classes)[:, None, :, None], -1)[..., 0]
    assert 1 - np.exp(right[..., 1:].sum(-1)).mean() < 1 / 20


def test_a_learned_world_is_an_argument_so_that_another_fit_is_not_compiled_again(fitted):
    data = gather(fitted.env.spec, one_step_episodes(fitted.env, [(0, 1), (1, 0)] * 5), CAPACITY)
    other = fit_one(jax.random.key(5), fitted.env.spec, data)[0]
    play = jax.jit(rollout)
    play(jax.random.key(0), LearnedEnvironment(fitted.model), RandomPolicy())
    compiled = play._cache_size()
    play(jax.random.key(0), LearnedEnvironment(other), RandomPolicy())
    assert play._cache_size() == compiled
