"""What a run of MARCO shows while it runs: a live board in a terminal, a plain line per phase everywhere.

Where there is no board, a phase that takes long is told of on the way too.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from marco.algorithm.loop import Event, Phase
from marco.runs.model_free_progress import spread
from marco.runs.time_left import TimeLeft, clock

DOING = {"collect": "collecting", "fit": "fitting the model", "team": "training the team in the model"}
DOING |= {"explore": "training to explore, in the model", "finish": "training the final team", "done": "done"}
"""What happens in each phase."""

WORDS = {"return": "real return", "uncertainty": "uncertainty of it", "imagined_return": "imagined return"}
WORDS |= {"exploration_return": "imagined return with bonus", "model_steps": "model steps"}
"""What the numbers of a phase are called; the rest are losses of the model's components."""


QUIET = 60.0
"""Without a board nothing is heard of a run for about so many seconds at most."""


class MarcoProgress:
    """Follows a run of MARCO."""

    def __init__(
        self, console: Console, schedule: tuple[int, ...], before: Sequence[tuple[Phase, float]] = ()
    ) -> None:
        self._console, self._schedule = console, schedule
        self._begun = self._told = time.perf_counter()
        self._left = TimeLeft(len(schedule), before)
        self._event: Event | None = None
        self._latest: dict[str, str] = {}
        self._model_steps = 0

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep the board up to date, if there is a terminal to show it in."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._board, console=self._console, refresh_per_second=2, transient=True):
            yield

    def show(self, event: Event) -> None:
        """Tell where the run stands."""
        now = time.perf_counter()
        took = self._left.see(event, now)
        self._event = event
        numbers = told(event)
        self._latest |= _kept(event, numbers)
        if event.over and "model_steps" in event.numbers:
            self._model_steps += int(np.mean(event.numbers["model_steps"]))
        long_ago = not self._console.is_terminal and now - self._told > QUIET
        if not numbers or not (event.over or long_ago):
            return
        self._told = now
        phase = event.phase if event.over else f"{event.phase} {event.share:.0%}"
        words = ", ".join(f"{name} {value}" for name, value in numbers.items())
        line = f"{event.samples:,} of {self._schedule[-1]:,} real samples, {phase}: {words}"
        self._console.print(f"{line} ({clock(took)}; {self._left.said(now)})", soft_wrap=True)

    def _board(self) -> Table:
        event, now = self._event, time.perf_counter()
        board = Table.grid(padding=(0, 2))
        if event is None:
            board.add_row("starting", "")
            return board
        steps = self._model_steps
        if not event.over and "model_steps" in event.numbers:
            steps += int(np.mean(event.numbers["model_steps"]))
        budget = self._schedule[-1]
        board.add_row(
            f"round {event.iteration + 1} of {len(self._schedule)}: {DOING[event.phase]}", _bar(event.share)
        )
        board.add_row(f"{event.samples:,} of {budget:,} real samples", _bar(event.samples / budget))
        for name, value in {"model steps": f"{steps:,}", **self._latest}.items():
            board.add_row(name, value)
        board.add_row(f"{clock(now - self._begun)} gone", self._left.said(now))
        return board


def told(event: Event) -> dict[str, str]:
    """The numbers of an event in words: the mean over seeds, with the lowest and the highest."""
    return {WORDS.get(name, name): spread(values) for name, values in event.numbers.items()}


def _kept(event: Event, numbers: dict[str, str]) -> dict[str, str]:
    """What stays on the board; of the model the sum of its components' losses."""
    if event.phase == "fit":
        return (
            {"held-out loss": spread(np.sum(list(event.numbers.values()), axis=0).tolist())}
            if numbers
            else {}
        )
    return {name: value for name, value in numbers.items() if name != "model steps"}


def _bar(share: float) -> ProgressBar:
    return ProgressBar(total=1.0, completed=share, width=40)
