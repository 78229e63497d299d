"""Checkpoints of a run, and the lock that keeps a second process out of its folder."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marco.algorithm.loop import Event, MarcoState
from marco.runs.folder import append_metrics, read_metrics
from marco.data.storage import load_arrays, save_arrays, write_atomically

FORMAT = 1
"""The version of the checkpoint's format."""


class RunJournal:
    """Keeps the last phase of a run in `checkpoint.npz` and a line for each in `metrics.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "checkpoint.npz"
        self.latest = int(self._open()["facts"]["step"]) if self._file.exists() else 0
        self._trim_metrics()
        self._before = time.perf_counter()

    def restore(self, like: MarcoState) -> MarcoState:
        """What had been learned at the last checkpoint, in the given shape."""
        arrays = self._open()
        leaves, structure = jax.tree.flatten(like)
        if arrays["facts"]["leaves"] != len(leaves):
            raise ValueError(f"{self._file} is of another run or version: it has other parts than this run.")
        found = []
        for index, leaf in enumerate(leaves):
            stored = arrays[f"leaf-{index}"]
            if stored.size == 0:
                stored = np.zeros(leaf.shape, leaf.dtype)
            if stored.shape != leaf.shape or stored.dtype != leaf.dtype:
                raise ValueError(
                    f"{self._file} is of another run or version: part {index} has the shape {stored.shape}, "
                    f"this run needs {leaf.shape}."
                )
            found.append(jnp.asarray(stored))
        return jax.tree.unflatten(structure, found)

    def keep(self, step: int, state: MarcoState, event: Event) -> None:
        """Write the line of metrics, then the checkpoint: a line without one is dropped on the way back."""
        self.note(step, event)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
        facts = {"format": FORMAT, "step": step, "leaves": len(leaves)}
        # What is all zeros, as an empty replay is, need not be written.
        arrays = {f"leaf-{i}": leaf if leaf.any() else leaf.ravel()[:0] for i, leaf in enumerate(leaves)}
        save_arrays(self._file, {"facts": np.array(json.dumps(facts)), **arrays})
        self.latest = step

    def note(self, step: int, event: Event) -> None:
        """Write the line of metrics, with the seconds since the one before it."""
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        row = {"step": step, **event._asdict(), "seconds": round(seconds, 3)}
        append_metrics(self._folder, {name: value for name, value in row.items() if name != "share"})

    def _open(self) -> dict[str, Any]:
        try:
            arrays = load_arrays(self._file)
            arrays["facts"] = json.loads(str(arrays["facts"]))
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"{error}. Delete {self._file}, and resume: all samples are kept, and what was learned from "
                "them is learned again."
            ) from error
        if arrays["facts"].get("format") != FORMAT:
            raise ValueError(f"{self._file} has another format than this MARCO reads: delete it, and resume.")
        return arrays

    def _trim_metrics(self) -> None:
        """Drop the lines of phases that will be done again, and a line torn by a crash."""
        kept = [row for row in read_metrics(self._folder) if row["step"] <= self.latest]
        lines = "".join(json.dumps(row) + "\n" for row in kept)
        write_atomically(self._folder / "metrics.jsonl", lines.encode())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder: a second process is refused. The lock ends with the process, however it ends."""
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{folder} is in use by another process: wait for it, or stop it.") from error
        yield
