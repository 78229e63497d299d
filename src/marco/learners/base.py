"""The contract of every learner: settings that can start, act and learn from episodes."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray

from marco.policies.base import Policy, RecurrentPolicy
from marco.types import Episode, Spec

LearnerState = Any
"""Whatever a learner keeps between updates: a pytree of arrays."""

Metrics = dict[str, Array]


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
