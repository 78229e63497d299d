"""Small environments, small networks, and models of both: what the tests of the learned model share."""

import jax
import jax.numpy as jnp
import numpy as np

from marco.environments.tabular import from_tables
from marco.model.components import Bounds, Component, Model, Scaling, layouts
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.model.fit import ModelPlan, fit_model
from marco.model.inputs import Inputs
from marco.model.predictors import create_predictor
from marco.model.views import Centralised
from marco.types import Episode

TRAINING = FitConfig(learning_rate=1e-2, batch_size=128, max_epochs=60, min_steps_per_epoch=20)
CAPACITY = 4000
STATES, ACTIONS, SEES, JOINT = 3, (2, 3), (3, 2), 6


def small(kind="chain"):
    return PredictorConfig(kind, (16,), members=2)


SETTINGS = ModelConfig(small(), small(), small(), small(), small("factored"), TRAINING)


def table(**changed):
    """A random Dec-POMDP of unequal agents: P and O from flat Dirichlet distributions, rewards of 3 kinds.

    State 2 ends the episode, and in state 1 agent 1 may take its first action only.
    """
    rng = np.random.default_rng(0)
    available = (np.arange(3) < np.array(ACTIONS)[:, None])[None].repeat(STATES, 0)
    available[1, 1, 1:] = False
    tables = {
        "P": rng.dirichlet(np.ones(STATES), (STATES, JOINT)),
        "R": rng.choice([-1.0, 0.0, 2.0], (STATES, JOINT)),
        "O": rng.dirichlet(np.ones(6), (JOINT, STATES)),
        "d0": np.array([0.6, 0.4, 0.0]),
    }
    return from_tables(
        **tables | changed,
        actions=ACTIONS,
        observations=SEES,
        horizon=4,
        available=available,
        terminal=[False, False, True],
    )


def one_step_episodes(env, pairs, seed=0):
    """An episode of one step, drawn from the tables, for every (state, joint action) in `pairs`."""
    rng = np.random.default_rng(seed)
    state, joint = np.array(pairs).T
    P, O = np.asarray(env.P, float), np.asarray(env.O, float)  # noqa: E741
    following = np.array([rng.choice(STATES, p=P[s, a] / P[s, a].sum()) for s, a in pairs])
    seen = [rng.choice(6, p=O[a, s] / O[a, s].sum()) for a, s in zip(joint, following, strict=True)]
    count = len(pairs)
    observation = np.zeros((2, count, 2, 3), np.float32)
    for agent, index in enumerate(np.unravel_index(np.array(seen), SEES)):
        observation[1, np.arange(count), agent, index] = 1.0
    both = np.stack([state, following])
    return Episode(
        observation=observation,
        state=np.eye(STATES, dtype=np.float32)[both],
        available=np.asarray(env.mask)[both],
        actions=np.stack(np.unravel_index(joint, ACTIONS), -1)[None].astype(np.int32),
        reward=np.asarray(env.R)[state, joint][None],
        terminated=(following == 2)[None],
        truncated=np.zeros((1, count), bool),
        mask=np.ones((1, count), bool),
    )


def fit_one(key, spec, data, settings=SETTINGS, known=None):
    """The centralised model of the data, and how its training went."""
    plan = ModelPlan(Centralised(), settings, spec, known=tuple((known or {}).items()))
    environment, (fits,) = fit_model(key, plan, (data,))
    return environment.model, fits


def unbounded(layout):
    """Values may be anything."""
    return Bounds(jnp.full(layout.num_values, -jnp.inf), jnp.full(layout.num_values, jnp.inf))


def noisy(seed, predictor, size_in, layout, noise=1.0):
    """Members (stacked) whose every weight is Gaussian: their predictions differ from the start."""
    keys = jax.random.split(jax.random.key(seed), predictor.members)
    shapes = jax.eval_shape(jax.vmap(lambda key: create_predictor(predictor, key, size_in, layout)), keys)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(noise * rng.normal(size=leaf.shape), jnp.float32), shapes)


def noisy_component(seed, name, spec, predictor, continuous_reward=False, noise=1.0):
    """A component of random weights, with every class possible and a standard deviation of 0.1."""
    layout = layouts(spec, continuous_reward)[name]
    width = len(Inputs(spec).numeric(name))
    unscaled = Scaling(jnp.zeros(width), jnp.ones(width))
    values = Scaling(jnp.zeros(layout.num_values), jnp.full(layout.num_values, 0.1))
    members = noisy(seed, predictor, width, layout, noise)
    return Component(members, unscaled, values, jnp.asarray(layout.class_exists), unbounded(layout), layout)


def noisy_model(seed, spec, starts, settings=SETTINGS, continuous_reward=False, noise=1.0, **given):
    """A model of random weights: what a learned environment must keep, it must keep with any weights."""
    parts = {
        name: noisy_component(seed + i, name, spec, getattr(settings, name), continuous_reward, noise)
        for i, name in enumerate(layouts(spec, continuous_reward))
    }
    starts = jnp.asarray(starts)
    return Model(
        **parts | given,
        known_start=None,
        reward_values=jnp.zeros(0) if continuous_reward else jnp.linspace(-1.0, 1.0, 16),
        starts=starts,
        num_starts=jnp.int32(len(starts)),
        inputs=settings.inputs(spec),
    )
