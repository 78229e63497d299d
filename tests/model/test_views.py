"""The rivals of Figure 2: what they are shown, how they play, and what they cannot know."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.contract import check_contract
from helpers.small import KINDS, SETTINGS, WORLD, learned, played
from marco.environments.switch import Switch
from marco.model.components import Known
from marco.model.uncertainty import uncertainty
from marco.model.views import (
    DecentralisedEnvironment,
    SeesItsState,
    ViewedPolicy,
    fit_data,
    fit_world,
    joint_observation_view,
    model_specs,
    models_of,
    one_agent_view,
    uncertainty_of,
    view_and_gather,
    viewed_spec,
)
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import rollouts
from marco.types import concatenate_observations


def test_joint_observation_is_the_state_and_every_feature_has_a_name_of_its_own():
    world = Switch()
    episodes = rollouts(jax.random.key(0), world, RandomPolicy(), 5)
    spec, viewed = joint_observation_view(world.spec, episodes)
    np.testing.assert_array_equal(viewed.state, concatenate_observations(world.spec, episodes.observation))
    assert spec.state_width == viewed.state.shape[-1] == 3 * world.spec.observation_width
    names = [feature.name for feature in spec.state]
    assert len(set(names)) == len(names) == sum(len(agent.observation) for agent in world.spec.agents)
    assert spec.agents == world.spec.agents
    shown = SeesItsState(spec)(jax.random.key(0), viewed.state[2, 3], episodes.actions[1, 3])
    np.testing.assert_array_equal(shown, episodes.observation[2, 3])


def test_one_agents_view_is_its_own_sight_and_action_with_the_teams_reward():
    world = Switch()
    episodes = rollouts(jax.random.key(0), world, RandomPolicy(), 5)
    spec, viewed = one_agent_view(world.spec, episodes, 1)
    assert spec.agents == (world.spec.agents[1],)
    assert spec.state == world.spec.agents[1].observation
    np.testing.assert_array_equal(viewed.state, episodes.observation[:, :, 1])
    np.testing.assert_array_equal(viewed.observation, episodes.observation[:, :, 1:2])
    np.testing.assert_array_equal(viewed.available, episodes.available[:, :, 1:2])
    np.testing.assert_array_equal(viewed.actions, episodes.actions[:, :, 1:2])
    np.testing.assert_array_equal(viewed.reward, episodes.reward)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_rival_keeps_the_contract(kind):
    world = learned(kind)[0]
    assert world.spec == viewed_spec(kind, WORLD.spec)
    check_contract(world, episodes=16)


def test_only_the_centralised_model_predicts_the_light():
    """Geometric means of the probability given to the true next light, on 400 fresh episodes.

    No observer of the light and the actions can do better than their conditional frequencies in those
    very episodes: that is the ceiling, and the rivals come to within 0.02 of theirs.
    """
    fresh = played(1, 400)
    seen = {kind: _probability_of_light(learned(kind)[0], kind, fresh) for kind in KINDS}
    light = fresh.observation[:, :, 0, 0]
    joint = _ceiling(light, fresh.actions)
    alone = np.mean([_ceiling(light, fresh.actions[:, :, agent : agent + 1]) for agent in range(2)])
    assert seen["centralised"] > 0.98
    assert joint - 0.02 < seen["joint-observation"] <= joint < 0.8
    assert alone - 0.02 < seen["decentralised"] <= alone < joint


def test_agents_alone_are_paid_the_mean_and_move_apart():
    world = learned("decentralised")[0]
    after, alone = _one_step_together_and_alone(world)
    np.testing.assert_allclose(after.reward, (alone[0].reward + alone[1].reward) / 2, rtol=1e-6)
    np.testing.assert_array_equal(world.observe(after.world)[1], alone[1].world.observation[0])
    played = rollouts(jax.random.key(2), world, RandomPolicy(), 100)
    assert (played.observation[:, :, 0] != played.observation[:, :, 1]).any()


def test_the_end_is_the_verdict_of_one_agent_drawn_at_random():
    """With one agent who always ends it and one who never does, about half of the steps end."""
    world = learned("decentralised")[0]
    verdicts = [_Verdict(True), _Verdict(False)]
    judged = DecentralisedEnvironment(
        tuple(_with_termination(own, verdict) for own, verdict in zip(world.worlds, verdicts, strict=True)),
        world.spec,
    )
    moment = judged.initial(jax.random.key(0))
    ends = jax.jit(jax.vmap(lambda key: judged.transition(key, moment, jnp.array([0, 0])).terminated))
    share = ends(jax.random.split(jax.random.key(1), 1000)).mean()
    assert 0.45 < share < 0.55


@pytest.mark.parametrize("kind", KINDS)
def test_uncertainty_is_the_sum_over_the_models(kind):
    world = learned(kind)[0]
    total, each = _uncertainties(world)
    assert len(each) == (2 if kind == "decentralised" else 1)
    np.testing.assert_allclose(total, sum(each), rtol=1e-6)
    assert min(each) > 0.0


def test_seeds_are_one_vmap_over_stacked_data():
    kind = "decentralised"
    data = view_and_gather(kind, WORLD.spec, played(0, 200), capacity=2000)
    assert len(data) == len(model_specs(kind, WORLD.spec)) == 2
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), data)

    def learn(key, data):
        return fit_data(key, kind, WORLD.spec, data, SETTINGS)

    world, _ = jax.eval_shape(jax.vmap(learn), jax.random.split(jax.random.key(0), 2), stacked)
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(world))
    assert world.spec == viewed_spec(kind, WORLD.spec)


def test_a_policy_of_the_view_plays_in_the_true_world():
    spec = WORLD.spec
    plain = rollouts(jax.random.key(0), WORLD, ViewedPolicy(_TakesWhenLit(), "joint-observation", spec), 50)
    lit = plain.observation[:-1, :, :, 0] > 0.5
    np.testing.assert_array_equal(plain.actions == 2, lit)


def test_known_functions_of_the_state_are_refused_by_the_rivals():
    with pytest.raises(ValueError, match="reward cannot be given to a decentralised model"):
        fit_world(
            jax.random.key(0),
            "decentralised",
            WORLD.spec,
            played(0, 200),
            SETTINGS,
            known={"reward": _Verdict(True)},
        )
    with pytest.raises(TypeError, match="Delayed is no learned world"):
        models_of(WORLD)


@jax.jit
def _one_step_together_and_alone(world):
    moment, actions = world.initial(jax.random.key(0)), jnp.array([0, 2])
    _, *keys = jax.random.split(jax.random.key(1), 3)
    alone = [
        own.transition(key, before, actions[i : i + 1])
        for i, (own, key, before) in enumerate(zip(world.worlds, keys, moment.agents, strict=True))
    ]
    return world.transition(jax.random.key(1), moment, actions), alone


@jax.jit
def _uncertainties(world):
    """Of one step: what is asked for, and each model's."""
    actions = jnp.array([1, 0])
    before = world.initial(jax.random.key(0))
    after = world.transition(jax.random.key(1), before, actions).world
    total = uncertainty_of(world, "variance", before, actions, after)
    if isinstance(world, DecentralisedEnvironment):
        parts = zip(models_of(world), before.agents, after.agents, actions, strict=True)
    else:
        parts = [(models_of(world)[0], before, after, actions)]
    each = [
        uncertainty(model, "variance", old.state, jnp.atleast_1d(a), new.state, new.observation)
        for model, old, new, a in parts
    ]
    return total, each


class _Verdict:
    """A termination that is known."""

    def __init__(self, over):
        self.over = over

    def __call__(self, s, a, following):
        return self.over


def _with_termination(world, verdict):
    return replace(world, model=replace(world.model, termination=Known(verdict)))


class _TakesWhenLit(Policy):
    """Takes if the state, of which column i is what agent i sees, says that the light is on."""

    def start(self):
        return ()

    def __call__(self, memory, timestep):
        lit = timestep.state[:2] > 0.5
        return memory, jax.nn.one_hot(jnp.where(lit, 2, 1), 3)


def _probability_of_light(world, kind, episodes):
    """The geometric mean over steps, and over models, of the probability of the next light."""
    views = view_and_gather(kind, WORLD.spec, episodes)
    return float(
        np.mean([_of_one_model(m, data.steps) for m, data in zip(models_of(world), views, strict=True)])
    )


@jax.jit
def _of_one_model(model, steps):
    """Of all that the state shows the light comes last, given what is before it."""

    def one(s, a, following):
        layout = model.dynamics.layout
        classes = layout.split(following).classes
        said = model.dynamics.predict(model.inputs.before_step(s, a), classes).log_probability
        chosen = jnp.take_along_axis(said, classes[None, :, None], axis=-1)[..., 0]
        return jax.nn.logsumexp(chosen.sum(-1)) - jnp.log(len(chosen))

    return jnp.exp(jax.vmap(one)(steps.state, steps.actions, steps.following).mean())


def _ceiling(light, actions):
    """exp(-H(next light | light, actions)), in these episodes themselves."""
    cases = {}
    rows = (light[:-1].ravel(), light[1:].ravel(), actions.reshape(-1, actions.shape[-1]))
    for before, after, taken in zip(*rows, strict=True):
        cases.setdefault((before, *taken), []).append(after)
    surprise = 0.0
    for seen in cases.values():
        for count in np.unique(seen, return_counts=True)[1]:
            surprise -= count * np.log(count / len(seen))
    return np.exp(-surprise / light[1:].size)
