"""What a run reports, and where its progress is kept."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

PhaseName = Literal["collect", "fit", "team", "explore", "final", "trial", "train", "done"]
"""The phases of Algorithm 1; `train` is the one phase of a model-free run."""


class Event(NamedTuple):
    """The progress of a phase."""

    phase: PhaseName
    iteration: int
    samples: int
    """Real samples per seed so far."""
    metrics: dict[str, list[Any]]
    """One value per seed; None where there is none."""
    progress: float = 1.0
    """How much of the phase is over, from 0 to 1."""
    warnings: tuple[str, ...] = ()
    """What the user must know of what was learned."""

    @property
    def over(self) -> bool:
        """Whether the phase has ended."""
        return self.progress == 1.0


@runtime_checkable
class Journal(Protocol):
    """Keeps what has been learned after every phase, so that a run can be resumed."""

    @property
    def latest(self) -> int:
        """The number of the last phase that was kept; 0 if there is none."""

    @property
    def events(self) -> Sequence[Event]:
        """The ends of the phases that were kept."""

    def restore(self, like: Any) -> Any:
        """The state after that phase, in the structure of `like`."""

    def keep(self, step: int, state: Any, event: Event) -> None:
        """Store the state after a phase; it is safe when this returns."""

    def note(self, step: int, event: Event) -> None:
        """Store the metrics of a phase that leaves the state as it is."""


class NoJournal:
    """Keeps nothing: for runs in memory."""

    latest = 0
    events: tuple[Event, ...] = ()

    def restore(self, like: Any) -> Any:
        """Nothing was kept."""
        raise ValueError("a run in memory cannot be resumed: give it a folder with `out`.")

    def keep(self, step: int, state: Any, event: Event) -> None:
        """Keep nothing."""

    def note(self, step: int, event: Event) -> None:
        """Keep nothing."""


NO_JOURNAL = NoJournal()
