"""How long a run will go on, estimated from how long its phases have taken so far."""

from collections.abc import Sequence
from typing import NamedTuple

from marco.algorithm.events import Event, PhaseName


class Mark(NamedTuple):
    """The progress of a phase at a time."""

    progress: float
    seconds: float


class TimeLeft:
    """Follows the phases of a run; the last phase of a kind stands for those of its kind to come."""

    def __init__(
        self, phases: Sequence[tuple[int, PhaseName]], before: Sequence[tuple[PhaseName, float]] = ()
    ) -> None:
        self._to_come = list(phases)
        self._took: dict[PhaseName, float] = {}
        self._once: set[PhaseName] = set()
        """Phases that were seen once, compilation included: the next will take less."""
        self._marks: list[Mark] = []
        self._begun: float | None = None
        for phase, seconds in before:  # in an earlier process
            self._remember(phase, seconds)

    def see(self, event: Event, seconds: float) -> float:
        """Take note of an event at a time; returns how long its phase has taken so far."""
        begun = seconds if self._begun is None else self._begun
        self._begun = begun
        place = (event.iteration, event.phase)
        if place in self._to_come:
            self._to_come = self._to_come[self._to_come.index(place) :]
        if event.over:
            self._to_come = self._to_come[1:]
            self._remember(event.phase, seconds - begun)
            self._marks, self._begun = [], seconds
        else:
            self._marks.append(Mark(event.progress, seconds))
        return seconds - begun

    def estimate(self, seconds: float) -> str:
        """The time left in words, with what is not known yet."""
        if not self._to_come:
            return "done soon"
        now = self._rest_of_phase(seconds)
        later = [phase for _, phase in self._to_come[1:]]
        unknown = {phase for phase in later if phase not in self._took}
        if now is None or unknown - {"final", "trial"}:
            return "time left not known yet"
        about = "at most" if self._once & set(later) else "about"
        total = clock(now + sum(self._took.get(phase, 0.0) for phase in later))
        return f"{about} {total} left" + (", then the final training" if "final" in unknown else "")

    def _remember(self, phase: PhaseName, seconds: float) -> None:
        if phase in self._took:
            self._once.discard(phase)
        else:
            self._once.add(phase)
        self._took[phase] = seconds

    def _rest_of_phase(self, seconds: float) -> float | None:
        # The first mark of a training comes after compilation: the pace is that of the marks after it.
        paced = [mark for mark in self._marks if mark.progress > 0.0]
        if len(paced) > 1:
            first, last = paced[0], paced[-1]
            pace = (last.seconds - first.seconds) / (last.progress - first.progress)
            return max(0.0, (1.0 - last.progress) * pace - (seconds - last.seconds))
        took = self._took.get(self._to_come[0][1])
        begun = seconds if self._begun is None else self._begun
        return None if took is None else max(0.0, took - (seconds - begun))


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours too."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
