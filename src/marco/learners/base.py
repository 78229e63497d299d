"""The contract of every learner: frozen settings that can initialise, act, and learn from episodes."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Int, PRNGKeyArray

from marco.policies.base import Policy
from marco.types import Episode, Spec
from marco.units import Units

LearnerState = Any
"""Whatever a learner keeps between updates: a pytree of arrays."""

Metrics = dict[str, Array]


@runtime_checkable
class Learner(Protocol):
    """Frozen, hashable settings. Everything that is learned is in the state."""

    @property
    def episodes_per_update(self) -> int:
        """How many episodes are played side by side before each update."""

    def init(self, key: PRNGKeyArray, spec: Spec) -> LearnerState:
        """The state before the first update."""

    def act(self, state: LearnerState, samples: Int[Array, ""]) -> Policy:
        """The behaviour policy after `samples` environment steps."""

    def greedy(self, state: LearnerState) -> Policy:
        """The team as it would be deployed."""

    def update(
        self, key: PRNGKeyArray, state: LearnerState, episodes: Episode
    ) -> tuple[LearnerState, Metrics]:
        """Learn from a batch of new episodes (axes T B)."""

    def clear_replay(self, state: LearnerState, spec: Spec) -> LearnerState:
        """Keep what was learned and drop stored episodes: the model they came from has been refitted."""


@runtime_checkable
class TakesUnits(Protocol):
    """A learner that can be told what the numbers of an environment are measured in, before it trains."""

    def with_units(self, state: LearnerState, units: Units) -> LearnerState:
        """The same state in these units, which were measured in real data."""
