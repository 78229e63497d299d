"""The baseline models of Figure 2: what they observe, how they play, and what they cannot know."""

import inspect
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.contract import check_contract
from helpers.small import WORLD, learned, plan, played
from marco.environments.switch import Switch
from marco.model.components import Known
from marco.model.environment import DecentralisedEnvironment
from marco.model.fit import fit_model
from marco.model.uncertainty import uncertainty
from marco.model.views import (
    VIEWS,
    Centralised,
    Decentralised,
    JointObservation,
    ViewedPolicy,
    make_view,
)
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import rollouts
from marco.types import concatenate_observations


def test_joint_observation_is_the_state_and_every_feature_has_a_name_of_its_own():
    world = Switch()
    episodes = rollouts(jax.random.key(0), world, RandomPolicy(), 5)
    view = JointObservation()
    spec, (viewed,) = view.spec(world.spec), view.episodes(world.spec, episodes)
    np.testing.assert_array_equal(viewed.state, concatenate_observations(world.spec, episodes.observation))
    assert spec.state_width == viewed.state.shape[-1] == 3 * world.spec.observation_width
    names = [feature.name for feature in spec.state]
    assert len(set(names)) == len(names) == sum(len(agent.observation) for agent in world.spec.agents)
    assert spec.agents == world.spec.agents
    observe = view.known(spec, {})["observation"]
    shown = observe(jax.random.key(0), viewed.state[2, 3], episodes.actions[1, 3])
    np.testing.assert_array_equal(shown, episodes.observation[2, 3])


def test_one_agents_view_is_its_own_sight_and_action_with_the_teams_reward():
    world = Switch()
    episodes = rollouts(jax.random.key(0), world, RandomPolicy(), 5)
    view = Decentralised()
    spec, viewed = view.model_specs(world.spec)[1], view.episodes(world.spec, episodes)[1]
    assert spec.agents == (world.spec.agents[1],)
    assert spec.state == world.spec.agents[1].observation
    np.testing.assert_array_equal(viewed.state, episodes.observation[:, :, 1])
    np.testing.assert_array_equal(viewed.observation, episodes.observation[:, :, 1:2])
    np.testing.assert_array_equal(viewed.available, episodes.available[:, :, 1:2])
    np.testing.assert_array_equal(viewed.actions, episodes.actions[:, :, 1:2])
    np.testing.assert_array_equal(viewed.reward, episodes.reward)


@pytest.mark.parametrize("name", ["joint-observation", "decentralised"])
def test_a_baseline_keeps_the_contract(name):
    world = learned(name)[0]
    assert world.spec == VIEWS[name].spec(WORLD.spec)
    check_contract(world, episodes=16, op_by_op=False)


def test_only_the_centralised_model_predicts_the_light():
    """Geometric means of the probability given to the true next light, on 400 fresh episodes.

    No observer of the light and the actions can do better than their conditional frequencies in those
    very episodes: that is the ceiling, and the baselines come to within 0.02 of theirs.
    """
    fresh = played(1, 400)
    seen = {name: _probability_of_light(learned(name)[0], name, fresh) for name in VIEWS}
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
        tuple(
            _with_termination(own, verdict) for own, verdict in zip(world.environments, verdicts, strict=True)
        ),
        world.spec,
    )
    moment = judged.initial(jax.random.key(0))
    ends = jax.jit(jax.vmap(lambda key: judged.transition(key, moment, jnp.array([0, 0])).terminated))
    share = ends(jax.random.split(jax.random.key(1), 1000)).mean()
    assert 0.45 < share < 0.55


@pytest.mark.parametrize("name", VIEWS)
def test_uncertainty_is_the_sum_over_the_models(name):
    world = learned(name)[0]
    total, each = _uncertainties(world)
    assert len(each) == (2 if name == "decentralised" else 1)
    np.testing.assert_allclose(total, sum(each), rtol=1e-6)
    assert min(each) > 0.0


def test_seeds_are_one_vmap_over_stacked_data():
    own = plan("decentralised")
    data = own.gather(played(0, 200), capacity=2000)
    assert len(data) == len(own.view.model_specs(WORLD.spec)) == 2
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), data)

    def learn(key, data):
        return fit_model(key, own, data)

    world, _ = jax.eval_shape(jax.vmap(learn), jax.random.split(jax.random.key(0), 2), stacked)
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(world))
    assert world.spec == own.view.spec(WORLD.spec)


def test_a_policy_of_the_view_plays_in_the_true_world():
    spec = WORLD.spec
    plain = rollouts(jax.random.key(0), WORLD, ViewedPolicy(_TakesWhenLit(), JointObservation(), spec), 50)
    lit = plain.observation[:-1, :, :, 0] > 0.5
    np.testing.assert_array_equal(plain.actions == 2, lit)


@pytest.mark.parametrize("name", ["joint-observation", "decentralised"])
def test_known_functions_of_the_state_are_refused_by_the_baselines(name):
    given = plan(name, known=(("reward", _Verdict(True)),))
    with pytest.raises(ValueError, match=f"reward cannot be given to a {name} model"):
        given.components()


def test_a_view_is_made_of_its_name_and_is_a_static_argument():
    """Two of the same view are equal and hash alike, so that nothing is compiled twice."""
    assert make_view("joint-observation") == JointObservation() != Decentralised()
    assert len({Centralised(), Centralised(), JointObservation(), Decentralised()}) == 3
    assert plan("decentralised") == plan("decentralised") != plan("centralised")
    assert hash(plan("decentralised")) == hash(plan("decentralised"))


def test_an_unknown_view_is_refused_by_name():
    """Without the type checks of the tests, which would refuse the name as well."""
    with pytest.raises(
        ValueError, match="unknown view 'central': there are centralised, joint-observation, "
    ):
        inspect.unwrap(make_view)("central")


def test_data_of_another_view_are_refused():
    data = plan("centralised").gather(played(0, 200))
    with pytest.raises(ValueError, match="delayed has 2 models in this view, got 1 Data"):
        plan("decentralised").fit_component(jax.random.key(0), data, (0, "dynamics"))


@jax.jit
def _one_step_together_and_alone(world):
    moment, actions = world.initial(jax.random.key(0)), jnp.array([0, 2])
    _, *keys = jax.random.split(jax.random.key(1), 3)
    alone = [
        own.transition(key, before, actions[i : i + 1])
        for i, (own, key, before) in enumerate(zip(world.environments, keys, moment.agents, strict=True))
    ]
    return world.transition(jax.random.key(1), moment, actions), alone


@jax.jit
def _uncertainties(world):
    """Of one step: what is asked for, and each model's."""
    actions = jnp.array([1, 0])
    before = world.initial(jax.random.key(0))
    after = world.transition(jax.random.key(1), before, actions).world
    total = world.uncertainty("variance", before, actions, after)
    if isinstance(world, DecentralisedEnvironment):
        parts = zip(world.models, before.agents, after.agents, actions, strict=True)
    else:
        parts = [(world.models[0], before, after, actions)]
    each = [
        uncertainty(model, "variance", old.central, jnp.atleast_1d(a), new.central, new.observation)
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


def _probability_of_light(world, name, episodes):
    """The geometric mean over steps, and over models, of the probability of the next light."""
    rows = plan(name).gather(episodes)
    return float(np.mean([_of_one_model(m, data.steps) for m, data in zip(world.models, rows, strict=True)]))


@jax.jit
def _of_one_model(model, steps):
    """Of all that the state shows the light comes last, given what is before it."""

    def one(s, a, following):
        layout = model.dynamics.layout
        classes = layout.split(following).classes
        said = model.dynamics.predict(model.inputs.before_step(s, a), classes).log_probability
        chosen = jnp.take_along_axis(said, classes[None, :, None], axis=-1)[..., 0]
        return jax.nn.logsumexp(chosen.sum(-1)) - jnp.log(len(chosen))

    return jnp.exp(jax.vmap(one)(steps.state, steps.actions, steps.next_state).mean())


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
