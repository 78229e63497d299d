"""The optimisers of the learners."""

from typing import Literal

import optax

OptimiserName = Literal["adam", "rmsprop"]


def make_optimiser(
    name: OptimiserName, learning_rate: optax.ScalarOrSchedule, clip: float
) -> optax.GradientTransformation:
    """Gradients clipped by their global norm, then Adam or RMSprop with PyMARL's constants."""
    if name == "adam":
        inner = optax.adam(learning_rate, eps=1e-5)
    else:
        inner = optax.rmsprop(learning_rate, decay=0.99, eps=1e-5, eps_in_sqrt=False)
    return optax.flatten(optax.chain(optax.clip_by_global_norm(clip), inner))
