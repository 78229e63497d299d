"""The contract of every learner: settings that can start, act and learn from episodes."""

from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from marco.networks import TeamNetwork, mask_scores
from marco.rollout import Memory, Policy
from marco.types import Episode, Spec, TimeStep

LearnerState = Any
"""Whatever a learner keeps between updates: a pytree of arrays."""

Metrics = dict[str, Array]


class RecurrentPolicy(Policy):
    """A team network at play: each agent takes its best available action, or draws by softmax."""

    network: TeamNetwork
    stochastic: bool = eqx.field(static=True, default=False)

    def start(self) -> Memory:
        """Empty memories."""
        return self.network.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Look, remember, and choose."""
        memory, scores = self.network.step(memory, timestep)
        scores = mask_scores(scores, timestep.available)
        if self.stochastic:
            return memory, jax.nn.softmax(scores)
        return memory, jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])


@runtime_checkable
class Learner(Protocol):
    """Frozen, hashable settings. What is learned lives in the state alone."""

    @property
    def episodes_per_update(self) -> int:
        """How many episodes are played side by side before each update."""

    def init(self, key: PRNGKeyArray, spec: Spec, which: Int[ArrayLike, ""] = 0) -> LearnerState:
        """Begin to learn; as which of several teams of one world, for learners that vary these."""

    def act(self, state: LearnerState, samples: Int[Array, ""]) -> Policy:
        """The policy that gathers episodes, after so many samples."""

    def greedy(self, state: LearnerState) -> RecurrentPolicy:
        """The team as it would be deployed."""

    def update(
        self, key: PRNGKeyArray, state: LearnerState, episodes: Episode
    ) -> tuple[LearnerState, Metrics]:
        """Learn from a batch of new episodes (axes T B)."""

    def forget(self, state: LearnerState, spec: Spec) -> LearnerState:
        """Keep what was learned, not the episodes: the world they came from is no more."""


OptimiserName = Literal["adam", "rmsprop"]


def make_optimiser(name: OptimiserName, learning_rate: float, clip: float) -> optax.GradientTransformation:
    """Gradients clipped by their global norm, then Adam or RMSprop with PyMARL's constants."""
    if name == "adam":
        inner = optax.adam(learning_rate, eps=1e-5)
    else:
        inner = optax.rmsprop(learning_rate, decay=0.99, eps=1e-5, eps_in_sqrt=False)
    return optax.flatten(optax.chain(optax.clip_by_global_norm(clip), inner))


def check_positive(owner: str, **values: float | int) -> None:
    """Refuse settings that must be positive and are not."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{owner}: {name} must be positive, got {value}.")


def check_between(owner: str, low: float, high: float, **values: float | int) -> None:
    """Refuse settings outside a closed range."""
    for name, value in values.items():
        if not low <= value <= high:
            raise ValueError(f"{owner}: {name} must be between {low} and {high}, got {value}.")
