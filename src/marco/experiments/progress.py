"""What a run shows while it runs: a live line in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from marco.algorithm import Event
from marco.experiments.model_free import Evaluation

Update = Callable[[int, str], None]
"""Moves the bar: to so many samples, with these words."""


@contextmanager
def live_bar(console: Console, samples: int, clock: ProgressColumn) -> Iterator[Update]:
    """A bar of samples in a terminal; nothing elsewhere."""
    columns = (TextColumn("{task.completed:,.0f} of {task.total:,.0f} samples"), BarColumn())
    status = TextColumn("{task.fields[status]}")
    with Progress(*columns, status, clock, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("train", total=samples, status="compiling")
        yield lambda done, words: bar.update(task, completed=done, status=words)


class TrainingProgress:
    """Follows a training from evaluation to evaluation."""

    def __init__(self, console: Console, samples: int, update: Update) -> None:
        self._console, self._samples, self._update = console, samples, update
        self._before = (0.0, 0)

    def show(self, evaluation: Evaluation, epsilon: float | None) -> None:
        """One more evaluation."""
        done = int(np.mean(evaluation.samples))
        seconds, before = evaluation.seconds - self._before[0], self._before[1]
        rate = (done - before) * len(evaluation.samples) / max(seconds, 1e-9)
        self._before = (evaluation.seconds, done)
        parts = [f"return {spread(evaluation.returns)}"]
        if epsilon is not None:
            parts.append(f"epsilon {epsilon:.2f}")
        parts.append(f"{rate:,.0f} samples/s")
        status = ", ".join(parts)
        self._update(done, status)
        if not self._console.is_terminal:
            left = seconds / max(done - before, 1) * (self._samples - done)
            line = f"{done:,} of {self._samples:,} samples: {status}, {left:.0f} s left"
            self._console.print(line, soft_wrap=True)


class MarcoProgress:
    """Follows a run of MARCO from phase to phase."""

    def __init__(self, console: Console, samples: int, update: Update) -> None:
        self._console, self._samples, self._update = console, samples, update
        self._before = time.perf_counter()

    def show(self, event: Event) -> None:
        """One more phase is over."""
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        if event.phase in ("done", "team") and not event.numbers:
            return
        self._update(event.samples, NEXT[event.phase])
        told = ", ".join(
            f"{name.replace('_', ' ')} {spread(values)}" for name, values in event.numbers.items()
        )
        self._console.print(
            f"{event.samples:,} of {self._samples:,} real samples, {event.phase}: {told} ({seconds:.1f} s)",
            soft_wrap=True,
        )


NEXT = {"collect": "fitting the model", "fit": "training in the model", "team": "training to explore"}
NEXT |= {"explore": "collecting", "finish": "judging", "done": "done"}
"""What follows each phase, in words."""


def spread(values: list[float]) -> str:
    """A mean, with the lowest and the highest if there are several."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{np.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"
