"""A small world and its models, learned once for all tests that judge them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from marco.environments.delayed import Delayed
from marco.model.early_stopping import FitConfig
from marco.model.fit import ModelConfig
from marco.model.predictors import PredictorConfig
from marco.model.views import fit_world
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts

WORLD = Delayed(delay=3, horizon=8)
KINDS = ("centralised", "joint-observation", "decentralised")
SMALL = PredictorConfig("chain", (16,), 2)
TRAINING = FitConfig(learning_rate=1e-2, max_epochs=25, patience=4)
MASKS = PredictorConfig("factored", (16,), 2)
SETTINGS = ModelConfig(SMALL, SMALL, SMALL, SMALL, MASKS, TRAINING)


@cache
def played(seed, episodes):
    """Random episodes of the world."""
    return jax.tree.map(np.asarray, rollouts(jax.random.key(seed), WORLD, RandomPolicy(), episodes))


@cache
def learned(kind):
    """The world as a model of this kind has it, from 1600 real steps, and how it was learned.

    Of the centralised one only the dynamics and the reward are learned, to save time.
    """
    known = None
    if kind == "centralised":
        known = {"observation": _light, "termination": _never, "available": _everything}
    return fit_world(jax.random.key(2), kind, WORLD.spec, played(0, 200), SETTINGS, known=known)


def _light(key, s, previous):
    return jnp.stack([s[-1:]] * WORLD.agents)


def _never(s, a, following):
    return False


def _everything(s):
    return jnp.ones((WORLD.agents, 3), bool)
