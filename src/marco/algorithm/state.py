"""What Algorithm 1 has learned so far, and what its random numbers are for."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from marco.algorithm.config import MarcoConfig
from marco.algorithm.events import Event
from marco.algorithm.fit import fit_warnings
from marco.learners.candidates import Best, ImaginedReturn, imagined_return, winning_policy
from marco.learners.training import TrainingState
from marco.policies.base import Policy
from marco.trees import row_of


class Stream(IntEnum):
    """What random numbers are for. A key depends on the seed, the iteration and the stream alone."""

    INIT = 0
    COLLECT = 1
    FIT = 2
    MEMORY = 10
    TEAM = 3
    EXPLORER = 4
    FINAL = 5
    FRESH_EXPLORER = 6
    OFFLINE = 7
    TRIAL = 8


class MarcoState(NamedTuple):
    """What has been learned; seeds first."""

    team: TrainingState
    """Q_theta."""
    explorer: TrainingState
    """Q_phi."""
    promised: Float[Array, " S"]
    """What the team so far earned in the model, at the end of its last training there."""
    model: Any = None
    """F-hat, played as an environment; None before the first fit."""
    fits: Any = None
    """How each component of the model was fitted."""
    best: tuple[Best, ...] = ()
    """The best team of each learner in the last model; empty before."""
    imagined: Any = None
    """What the candidates of each seed earn in the last model, by fresh episodes (`Imagined`)."""

    @property
    def imagined_return(self) -> ImaginedReturn:
        """What the team of each seed earns in the last model."""
        return imagined_return(self.imagined, self.best)

    def warnings(self, seeds: tuple[int, ...], ended: Iterable[Event]) -> tuple[str, ...]:
        """What is to be known of the last model, collection and trial before the team is trusted."""
        last = {event.phase: event.warnings for event in ended}
        return (*fit_warnings(self.fits, seeds), *last.get("collect", ()), *last.get("trial", ()))

    def policy(self, config: MarcoConfig, index: int) -> Policy:
        """The team of one seed: the best in the last model, or the one trained so far."""
        if self.best:
            return winning_policy(self.best, index)
        return config.team.greedy(row_of(self.team.learner, index))
