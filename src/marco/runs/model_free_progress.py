"""What a run shows while it runs: a live line in a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from marco.runs.model_free import Evaluation

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


def spread(values: Sequence[float | int | None]) -> str:
    """A mean, with the lowest and the highest if there are several; None is left out."""
    known = [value for value in values if value is not None]
    if not known:
        return "unknown"
    show = "{:,}" if all(isinstance(value, int) for value in known) else "{:.4f}"
    if len(known) == 1:
        return show.format(known[0])
    low, high = show.format(min(known)), show.format(max(known))
    return f"{show.format(type(known[0])(np.mean(known)))} ({low} to {high})"
