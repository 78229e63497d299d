"""A real episode under way in a host environment, kept step by step: a crash loses none of its steps.

data/open-000003 becomes data/chunk-000003.npz when its episode is over, or at the next start. It is a row of
records of fixed sizes, each followed by its checksum: the most steps that the episode may take, its first
timestep, then of every step the actions, written *before* the step is taken, and the timestep after it.
"""

import io
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
from jaxtyping import Int

from marco.data.storage import flush_folder, naming
from marco.types import Episode, Spec, TimeStep

CHECK = 4
"""Bytes of a checksum."""
SYNC = 0.1
"""Seconds between two flushes to the disk itself, at least: they would cost much in a quick environment.

What is written outlives the process at once. Where a step takes longer than that, every record is flushed,
and outlives the machine too.
"""


class Records(NamedTuple):
    """The records of an environment."""

    limit: np.dtype[Any]
    timestep: np.dtype[Any]
    actions: np.dtype[Any]

    @classmethod
    def of(cls, spec: Spec) -> "Records":
        team = spec.num_agents
        shown: list[Any] = [
            ("observation", "<f4", (team, spec.observation_width)),
            ("state", "<f4", (spec.state_width,)),
            ("available", "?", (team, spec.num_actions)),
            ("reward", "<f4"),
            ("terminated", "?"),
            ("truncated", "?"),
        ]
        return cls(np.dtype([("limit", "<i4")]), np.dtype(shown), np.dtype([("actions", "<i4", (team,))]))


class Recorded(NamedTuple):
    """What there is of an episode that was played step by step."""

    episode: Episode
    """Axes seeds T B, of one seed and one episode: what was shown of it."""
    lost: int | None
    """Steps that were begun and whose outcome was never shown; None if the episode did not break off."""


class OpenEpisode:
    """Writes down an episode as it is played; in memory alone where no path is given."""

    def __init__(self, path: Path | None, spec: Spec, limit: int) -> None:
        self.path, self.limit = path, limit
        self._spec, self._records = spec, Records.of(spec)
        with naming(path or Path()):
            self._file: BinaryIO = io.BytesIO() if path is None else path.open("w+b", buffering=0)
        self._synced = self._acted = time.monotonic()
        self._slow = False
        if path is not None:
            flush_folder(path.parent)
        self._write((limit,), self._records.limit)

    def show(self, timestep: TimeStep) -> None:
        """Write down what the environment showed."""
        self._slow = time.monotonic() - self._acted > SYNC
        names = self._records.timestep.names or ()
        self._write(tuple(np.asarray(getattr(timestep, name)) for name in names), self._records.timestep)

    def act(self, actions: Int[np.ndarray, " N"]) -> None:
        """Write down the actions of a step that is now taken."""
        self._write((actions,), self._records.actions)
        self._acted = time.monotonic()

    def close(self) -> Recorded | None:
        """The episode so far; None if no step was begun."""
        self._file.seek(0)
        raw = self._file.read()
        self._file.close()
        return read_open(raw, self._spec)

    def _write(self, fields: tuple[Any, ...], kind: np.dtype[Any]) -> None:
        body = np.array(fields, kind).tobytes()
        left = memoryview(body + _checksum(body))
        with naming(self.path or Path()):
            while left:
                left = left[self._file.write(left) :]
            if self.path is not None and (self._slow or time.monotonic() - self._synced > SYNC):
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()


def read_open(raw: bytes, spec: Spec) -> Recorded | None:
    """The episode in what `OpenEpisode` wrote; None if no step was begun.

    Whatever cannot be read any more was not shown; the steps after it count all the same.
    """
    records, at = Records.of(spec), 0

    def take(kind: np.dtype[Any]) -> Any:
        nonlocal at
        body, check = raw[at : at + kind.itemsize], raw[at + kind.itemsize : at + kind.itemsize + CHECK]
        at += kind.itemsize + CHECK
        return np.frombuffer(body, kind)[0] if check and check == _checksum(body) else None

    limit, first = take(records.limit), take(records.timestep)
    acting = records.actions.itemsize + CHECK
    whole, rest = divmod(max(0, len(raw) - at), acting + records.timestep.itemsize + CHECK)
    begun = min(whole + (rest >= acting), spec.horizon)
    if not begun:
        return None
    steps: list[Any] = [np.zeros((), records.timestep) if first is None else first]
    chosen: list[Any] = []
    while first is not None and len(chosen) < begun and (actions := take(records.actions)) is not None:
        chosen.append(actions["actions"])
        if (timestep := take(records.timestep)) is None:
            break
        steps.append(timestep)
    shown = len(steps) - 1
    most = spec.horizon if limit is None else min(spec.horizon, int(limit["limit"]))
    over = shown == begun and (steps[-1]["terminated"] or steps[-1]["truncated"] or shown >= most)
    return Recorded(_padded(spec, steps, chosen), None if over else begun - shown)


def _padded(spec: Spec, steps: list[Any], chosen: list[Any]) -> Episode:
    """An episode as `play` gives it: the last timestep is repeated, with no reward."""
    timesteps = np.array(steps + [steps[-1]] * (spec.horizon + 1 - len(steps)))
    last = chosen[-1] if chosen else np.zeros(spec.num_agents, np.int32)
    taken = np.array(chosen + [last] * (spec.horizon - len(chosen)), np.int32)
    mask = np.arange(spec.horizon) < len(steps) - 1
    fields = [
        timesteps["observation"],
        timesteps["state"],
        timesteps["available"],
        taken,
        np.where(mask, timesteps["reward"][1:], np.float32(0.0)),
        timesteps["terminated"][1:] & mask,
        timesteps["truncated"][1:] & mask,
        mask,
    ]
    batch: list[Any] = [np.ascontiguousarray(field)[None, :, None] for field in fields]
    return Episode(*batch)


def _checksum(body: bytes) -> bytes:
    return crc32(body).to_bytes(CHECK, "little")
