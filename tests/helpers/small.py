"""A small environment and its models, learned once for all tests that evaluate them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from marco.environments.delayed import Delayed
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.model.fit import ModelPlan, fit_model
from marco.model.views import VIEWS
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts

WORLD = Delayed(delay=3, horizon=8)
SMALL = PredictorConfig("chain", (16,), 2)
TRAINING = FitConfig(learning_rate=1e-2, max_epochs=25, patience=4)
MASKS = PredictorConfig("factored", (16,), 2)
SETTINGS = ModelConfig(SMALL, SMALL, SMALL, SMALL, MASKS, TRAINING)


@cache
def played(seed, episodes):
    """Random episodes of the world."""
    return jax.tree.map(np.asarray, rollouts(jax.random.key(seed), WORLD, RandomPolicy(), episodes))


def plan(name, **changed):
    """How the model of this view is fitted."""
    return ModelPlan(**{"view": VIEWS[name], "config": SETTINGS, "spec": WORLD.spec} | changed)


@cache
def learned(name):
    """The learned environment of this view, from 1600 real steps, and how it was learned.

    Of the centralised model only the dynamics and the reward are learned, to save time.
    """
    known = {"observation": _light, "termination": _never, "available": _everything}
    own = plan(name, known=tuple(known.items()) if name == "centralised" else ())
    return fit_model(jax.random.key(2), own, own.gather(played(0, 200)))


def _light(key, s, previous):
    return jnp.stack([s[-1:]] * WORLD.agents)


def _never(s, a, next_s):
    return False


def _everything(s):
    return jnp.ones((WORLD.agents, 3), bool)
