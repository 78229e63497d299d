import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.switch import Switch
from marco.learners.mappo import MAPPO, advantages, surrogate
from marco.rollout import rollouts
from marco.types import Episode


def episode(reward, terminated, truncated, mask):
    def column(values, kind):
        return jnp.array(values, kind)[:, None]

    nothing = jnp.zeros((len(reward) + 1, 1, 1, 1))
    return Episode(
        observation=nothing,
        state=nothing[..., 0],
        available=nothing > -1,
        actions=jnp.zeros((len(reward), 1, 1), jnp.int32),
        reward=column(reward, jnp.float32),
        terminated=column(terminated, bool),
        truncated=column(truncated, bool),
        mask=column(mask, bool),
    )


def test_advantages_by_hand():
    """With gamma and lambda 0.5; whether terminated or out of time, nothing follows the end."""
    value = jnp.array([[10.0], [20.0], [30.0], [99.0]])
    last = 3.0 - 30.0
    middle = 2.0 + 0.5 * 30.0 - 20.0 + 0.25 * last
    first = 1.0 + 0.5 * 20.0 - 10.0 + 0.25 * middle
    for ends in (
        {"terminated": [0, 0, 1], "truncated": [0, 0, 0]},
        {"terminated": [0, 0, 0], "truncated": [0, 0, 1]},
    ):
        result = advantages(episode([1, 2, 3], mask=[1, 1, 1], **ends), value, 0.5, 0.5)
        assert result[:, 0].tolist() == pytest.approx([first, middle, last])


def test_steps_not_taken_teach_nothing():
    value = jnp.array([[10.0], [20.0], [30.0], [99.0]])
    result = advantages(episode([1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]), value, 0.5, 0.5)
    assert result[:, 0].tolist() == [1.0 - 10.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain"),
    [(1.5, 2.0, 2.4), (1.1, 2.0, 2.2), (0.5, 2.0, 1.0), (0.5, -2.0, -1.6), (1.5, -2.0, -3.0)],
)
def test_the_surrogate_is_clipped_where_it_would_gain(ratio, advantage, gain):
    assert surrogate(jnp.array([ratio]), jnp.array([advantage]), 0.2).tolist() == pytest.approx([gain])


def test_the_loss_is_finite_and_steps_after_the_end_do_not_count():
    env, learner = Switch(), MAPPO(episodes_per_update=16)
    state = learner.init(jax.random.key(0), env.spec)
    episodes = rollouts(jax.random.key(1), env, learner.act(state, jnp.int32(0)), 16)
    assert not episodes.mask.all()
    targets = learner.targets(state.online, episodes)
    garbage = jnp.where(episodes.mask[..., None], episodes.actions, 3)
    losses = [
        jax.value_and_grad(learner.loss)(state.online, episodes._replace(actions=actions), targets)
        for actions in (episodes.actions, garbage)
    ]
    assert np.isfinite(losses[0][0])
    for one, other in zip(*map(jax.tree.leaves, losses), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("minibatches", [1, 2, 4])
def test_every_episode_is_in_one_minibatch_of_every_pass(minibatches):
    learner = MAPPO(episodes_per_update=8, minibatches=minibatches)
    numbers = jnp.arange(8)[None] + jnp.zeros((3, 1), int)
    parts = np.asarray(learner._parts(jax.random.key(0), numbers))
    assert parts.shape == (minibatches, 3, 8 // minibatches)
    assert (parts == parts[:, :1]).all()  # episodes stay whole
    assert sorted(parts[:, 0].ravel().tolist()) == list(range(8))
    if minibatches > 1:
        again = np.asarray(learner._parts(jax.random.key(1), numbers))
        assert (again != parts).any()


def test_minibatches_must_divide_the_batch():
    with pytest.raises(ValueError, match="episodes_per_update=8 must be a multiple of minibatches=3"):
        MAPPO(episodes_per_update=8, minibatches=3)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"gae_lambda must be between 0\.0 and 1\.0, got 2\.0"):
        MAPPO(gae_lambda=2.0)
