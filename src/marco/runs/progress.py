"""What a run shows while it runs: a live board in a terminal, a plain line per phase elsewhere.

Where there is no board, a long phase is reported on the way too.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from marco.algorithm.events import Event, PhaseName
from marco.runs.time_left import TimeLeft, clock

DOING: dict[PhaseName, str] = {
    "collect": "collecting real episodes",
    "fit": "fitting the model",
    "team": "training the team in the model",
    "explore": "training the exploration policy in the model",
    "final": "training the final teams in the model",
    "trial": "letting the best teams play for real",
    "train": "training in the environment",
    "done": "done",
}

NAMES = {
    "return": "real return",
    "uncertainty": "its uncertainty",
    "team_return": "that of the team so far",
    "imagined_return": "imagined return",
    "planned_return": "that of the planned team",
    "gain_per_1000": "gained by 1,000 real samples",
    "trial_return": "real return of the chosen team in its trial",
    "expected_return": "what it is expected to earn",
    "exploration_return": "imagined return with bonus",
    "model_steps": "model steps",
    "epsilon": "epsilon",
}
"""How metrics are shown; the metrics of a fit are held-out losses of the model's components."""

HIDDEN = ("samples", "updates", "test_steps", "standard_error", "training_return", "loss")

QUIET = 60.0
"""Without a board a run is silent for about so many seconds at most."""


class Progress:
    """Follows a run."""

    def __init__(
        self,
        console: Console,
        phases: Sequence[tuple[int, PhaseName]],
        budget: int,
        before: Sequence[tuple[PhaseName, float]] = (),
    ) -> None:
        self._console, self._budget = console, budget
        self._rounds = 1 + max(iteration for iteration, _ in phases)
        self._begun = self._reported = time.perf_counter()
        self._left = TimeLeft(phases, before)
        self._event: Event | None = None
        self._latest: dict[str, str] = {}
        self._model_steps = 0
        self._compiled: set[PhaseName] = set()

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep the board up to date, if there is a terminal to show it in."""
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._board, console=self._console, refresh_per_second=2, transient=True):
            yield

    def show(self, event: Event) -> None:
        """Report the progress of the run."""
        now = time.perf_counter()
        took = self._left.see(event, now)
        self._event = event
        metrics = in_words(event)
        self._latest |= _kept(event, metrics)
        if event.over and "model_steps" in event.metrics:
            self._model_steps += int(np.mean(event.metrics["model_steps"]))
        self._say_compiling(event)
        due = event.phase == "train" or now - self._reported > QUIET
        if not metrics or not (event.over or (due and not self._console.is_terminal)):
            return
        self._reported = now
        for warning in event.warnings:
            self._console.print(f"Warning: {warning}", style="yellow", soft_wrap=True, markup=False)
        phase = event.phase if event.over else f"{event.phase} {event.progress:.0%}"
        words = ", ".join(f"{name} {value}" for name, value in metrics.items())
        line = f"{event.samples:,} of {self._budget:,} real samples, {phase}: {words}"
        self._console.print(f"{line} ({clock(took)}; {self._left.estimate(now)})", soft_wrap=True)

    def _say_compiling(self, event: Event) -> None:
        """Say once that the first phase of a kind compiles: nothing else is seen of it for a while."""
        first = event.phase not in self._compiled and event.phase in ("fit", "final", "train")
        if first and event.progress == 0.0 and not self._console.is_terminal:
            note = "compiling, once for this environment and these settings"
            self._console.print(f"{DOING[event.phase]}: {note} ...", soft_wrap=True)
        self._compiled.add(event.phase)

    def _board(self) -> Table:
        event, now = self._event, time.perf_counter()
        board = Table.grid(padding=(0, 2))
        if event is None:
            board.add_row("starting", "")
            return board
        steps = self._model_steps
        if not event.over and "model_steps" in event.metrics:
            steps += int(np.mean(event.metrics["model_steps"]))
        doing = DOING[event.phase]
        if self._rounds > 1:
            doing = f"round {event.iteration + 1} of {self._rounds}: {doing}"
        board.add_row(doing, _bar(event.progress))
        board.add_row(
            f"{event.samples:,} of {self._budget:,} real samples", _bar(event.samples / self._budget)
        )
        for name, value in {"model steps": f"{steps:,}", **self._latest}.items():
            board.add_row(name, value)
        board.add_row(f"{clock(now - self._begun)} gone", self._left.estimate(now))
        return board


def in_words(event: Event) -> dict[str, str]:
    """The metrics of an event in words: the mean over seeds, with the lowest and the highest."""
    shown = {name: values for name, values in event.metrics.items() if name not in HIDDEN}
    return {NAMES.get(name, name): summarise(values) for name, values in shown.items()}


def summarise(values: Sequence[float | int | None]) -> str:
    """A mean, with the lowest and the highest if there are several; None is left out."""
    known = [value for value in values if value is not None]
    if not known:
        return "unknown"
    show = "{:,}" if all(isinstance(value, int) for value in known) else "{:.4f}"
    if len(known) == 1:
        return show.format(known[0])
    low, high = show.format(min(known)), show.format(max(known))
    return f"{show.format(type(known[0])(np.mean(known)))} ({low} to {high})"


def _kept(event: Event, metrics: dict[str, str]) -> dict[str, str]:
    """What stays on the board; of the model the sum of its components' losses."""
    if event.phase == "fit":
        losses = list(event.metrics.values())
        return {"held-out loss": summarise(np.sum(losses, axis=0).tolist())} if losses else {}
    return {name: value for name, value in metrics.items() if name != "model steps"}


def _bar(share: float) -> ProgressBar:
    return ProgressBar(total=1.0, completed=share, width=40)
