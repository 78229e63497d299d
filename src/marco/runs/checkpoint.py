"""Checkpoints and metrics of a run, and the lock that keeps a second process out of its folder."""

import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from marco.algorithm.events import Event, PhaseName
from marco.data.storage import load_arrays, naming, save_arrays, write_atomically

FORMAT = 2
"""The version of the checkpoint's format."""

HUGE = 1e300
"""No metric is as large; nor is what is not a number smaller."""


class DamagedWarning(UserWarning):
    """A file of a run is damaged, and the run goes on without it."""


class RunJournal:
    """Keeps the state after the last phase in `checkpoint.npz`, and a line for each in `metrics.jsonl`.

    Arrays are stored under their paths in the state, so that a field that moved is never read as another.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "checkpoint.npz"
        self._cure = (
            f"Delete {self._file}, and resume: all samples are kept, and what was learned from them is "
            "learned again."
        )
        self.latest = int(self._open()["facts"]["step"]) if self._file.exists() else 0
        self._before, self._trimmed = time.perf_counter(), False

    @property
    def events(self) -> Sequence[Event]:
        """The ends of the phases up to the last checkpoint."""
        steps = [row["step"] for row in read_metrics(self._folder)]
        kept = zip(steps, read_events(self._folder), strict=True)
        return [event for step, event in kept if step <= self.latest]

    def restore(self, like: Any) -> Any:
        """The state at the last checkpoint, in the structure of `like`."""
        arrays = self._open()
        paths, structure = jax.tree_util.tree_flatten_with_path(like)
        needed, found = {jax.tree_util.keystr(path) for path, _ in paths}, set(arrays) - {"facts"}
        if needed != found:
            strange = sorted(needed ^ found)[0]
            raise ValueError(
                f"{self._file} is of another run or version: {strange!r} is in one of them only. {self._cure}"
            )
        leaves = [self._leaf(arrays[jax.tree_util.keystr(path)], path, leaf) for path, leaf in paths]
        return jax.tree_util.tree_unflatten(structure, leaves)

    def _leaf(self, stored: np.ndarray, path: Any, like: Any) -> Any:
        if stored.size == 0:
            stored = np.zeros(like.shape, like.dtype)
        if stored.shape != like.shape or stored.dtype != like.dtype:
            raise ValueError(
                f"{self._file} is of another run or version: {jax.tree_util.keystr(path)} has the shape "
                f"{stored.shape}, this run needs {like.shape}. {self._cure}"
            )
        return jnp.asarray(stored)

    def keep(self, step: int, state: Any, event: Event) -> None:
        """Write the metrics, then the checkpoint: a line without a checkpoint is dropped on the way back."""
        self.note(step, event)
        leaves = {
            jax.tree_util.keystr(path): np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        }
        facts = {"format": FORMAT, "step": step}
        # An array of zeros, as an empty replay is, need not be written.
        arrays = {name: leaf if leaf.any() else leaf.ravel()[:0] for name, leaf in leaves.items()}
        save_arrays(self._file, {"facts": np.array(json.dumps(facts)), **arrays})
        self.latest = step

    def note(self, step: int, event: Event) -> None:
        """Write the metrics, with the seconds since those before."""
        if not self._trimmed:  # by who writes: who only reads must leave a live run alone
            self._trim_metrics()
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        row = {"step": step, **event._asdict(), "seconds": round(seconds, 3)}
        append_metrics(self._folder, {name: value for name, value in row.items() if name != "progress"})

    def _open(self) -> dict[str, Any]:
        arrays = load_arrays(self._file, self._cure)
        try:
            facts = json.loads(str(arrays.get("facts")))
        except (ValueError, RecursionError):
            facts = None
        match facts:
            case {"format": format, "step": int(step)} if format == FORMAT and step > 0:
                return arrays | {"facts": facts}
        raise ValueError(f"{self._file} has another format than this MARCO reads. {self._cure}")

    def _trim_metrics(self) -> None:
        """As a run goes on: drop the lines of phases that are done again, and a line torn by a crash."""
        self._trimmed = True
        kept = [row for row in read_metrics(self._folder) if row.get("step", HUGE) <= self.latest]
        lines = "".join(json.dumps(row) + "\n" for row in kept)
        write_atomically(self._folder / "metrics.jsonl", lines.encode())


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines that `append_metrics` wrote. It is a log: what is damaged is left out, and stops nothing.

    A last line without an end was torn by a crash, as may be; others are warned of.
    """
    file = folder / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n") if file.exists() else [b""]
    rows = [_row(line) for line in lines]
    if dropped := [number for number, row in enumerate(rows[:-1], 1) if row is None]:
        warnings.warn(
            f"{file} is damaged: {len(dropped)} of its lines are left out, the first is line {dropped[0]}. "
            "It is a log, and nothing else depends on it.",
            DamagedWarning,
            stacklevel=2,
        )
    return [row for row in rows if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    """The metrics in a line, or None if they are damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match row:
        case {
            "phase": str(phase),
            "iteration": int(),
            "samples": int(samples),
            "metrics": dict(metrics),
            "seconds": float(seconds),
            **rest,
        } if phase in get_args(PhaseName) and 0 <= seconds < HUGE and 0 <= samples < HUGE:
            sound = isinstance(rest.get("step", 0), int) and _are_words(rest.get("warnings", []))
            return row if sound and all(map(_are_numbers, metrics.values())) else None
    return None


def _are_words(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) and one.isprintable() for one in values)


def _are_numbers(values: Any) -> bool:
    """Whether these are the values of a metric, one per seed."""
    if not isinstance(values, list):
        return False
    known = [value for value in values if value is not None]
    return all(isinstance(value, int | float) and -HUGE < value < HUGE for value in known)


def read_events(folder: Path) -> list[Event]:
    """The ends of a run's phases, as its metrics tell them."""
    return [
        Event(
            row["phase"],
            row["iteration"],
            row["samples"],
            row["metrics"],
            1.0,
            tuple(row.get("warnings", ())),
        )
        for row in read_metrics(folder)
    ]


def append_metrics(folder: Path, metrics: dict[str, Any]) -> None:
    """Add a line to the metrics; it is on the disk when this returns."""
    whole = folder / "metrics.jsonl"
    with naming(whole), whole.open("a") as file:
        file.write(json.dumps(metrics, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder: a second process is refused. The lock ends with the process, however it ends."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / "lock", blocking=False):
            yield
    except Timeout as error:
        raise ValueError(f"{folder} is in use by another process: wait for it, or stop it.") from error
