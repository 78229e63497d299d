"""Real episodes, append-only: on disk each chunk is written whole or not at all, before it is learned from.

data/chunk-000000.npz, chunk-000001.npz, ... hold the fields of an Episode with the axes seeds T B in front
(T + 1 for observations, states and masks of actions). Steps with `mask` False were never taken; episodes
without any are padding. A sample is a step with `mask` True, and their number is what has been spent so far.

A file with `lost` is of an episode that broke off: so many steps of each seed were begun without an outcome
ever being shown. They are samples too, from which nothing can be learned.

In a host environment a chunk is one episode, and its number is the place of that episode: its random numbers
depend on it, whichever simulator plays it. Several may be under way (open-000003, open-000005); they become
chunks in the order of their places. again-000003-0 is what was played of episode 3 before its simulator was
lost: it was played again, and these steps are counted apart.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from marco.data.chunk import CURE, Chunk, check_chunk, read_chunk
from marco.data.open_episode import OpenEpisode, Recorded, read_open
from marco.data.storage import flush_folder, save_arrays
from marco.types import Episode, Spec

OPEN, AGAIN = "open-", "again-"
"""How the files of episodes under way begin, and those of what was played again; the number is the place."""


class BrokenOff(NamedTuple):
    """The episodes that broke off: by an error of the environment, or with the process."""

    episodes: int
    steps: int
    """All steps of these episodes, which are among the samples."""


class PlayedAgain(NamedTuple):
    """Beginnings of episodes whose simulator was lost: the episodes were played again, in their places."""

    episodes: int
    steps: int
    """Real steps that are not among the samples: they were taken beside them."""


class Dataset:
    """All real samples of a run, for every seed; in memory alone where no folder is given."""

    def __init__(self, folder: Path | None, spec: Spec, seeds: int) -> None:
        self.folder, self.spec, self.seeds = folder, spec, seeds
        self._chunks: list[Chunk] = [] if folder is None else self._read_all(folder)
        self._samples: np.ndarray = sum((chunk.steps for chunk in self._chunks), np.zeros(seeds, int))
        self.begun = sum(chunk.begun for chunk in self._chunks)
        """Episodes of the first seed so far, those that broke off included."""
        self._under_way: dict[int, OpenEpisode] = {}
        self._over: dict[int, Recorded] = {}
        """Episodes that are over, while one before them is under way."""
        self._again = [] if folder is None else [_steps_in(path, spec) for path in folder.glob(f"{AGAIN}*")]

    def _read_all(self, folder: Path) -> list[Chunk]:
        folder.mkdir(parents=True, exist_ok=True)
        chunks = [self._read(path) for path in sorted(folder.glob("chunk-*.npz"))]
        expected = [f"chunk-{index:06d}.npz" for index in range(len(chunks))]
        # A write that never finished leaves a hidden file: nothing was learned from it.
        found = sorted(path.name for path in folder.iterdir() if not _is_passing(path.name))
        if found != expected:
            strange = sorted(set(found) ^ set(expected))[0]
            raise ValueError(
                f"{folder / strange} does not belong there, or is missing, since chunks are numbered: move "
                "it away, or put it back."
            )
        return chunks

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return len(self._chunks)

    @property
    def samples(self) -> np.ndarray:
        """Real steps so far, of each seed."""
        return self._samples

    @property
    def broken_off(self) -> BrokenOff:
        """The episodes that broke off so far."""
        broken = [chunk.steps for chunk in self._chunks if chunk.lost is not None]
        return BrokenOff(len(broken), int(np.sum(broken)))

    @property
    def played_again(self) -> PlayedAgain:
        """What was played again so far."""
        return PlayedAgain(len(self._again), sum(self._again))

    def append(self, episodes: Episode, lost: np.ndarray | None = None) -> None:
        """Write a chunk (axes seeds T B); when this returns it is on the disk."""
        checked = check_chunk(self.spec.name, jax.tree.map(np.asarray, episodes), self.spec)
        chunk = Chunk(checked, lost)
        if self.folder is not None:
            extra = {} if lost is None else {"lost": lost}
            save_arrays(self._path("chunk-", len(self._chunks), ".npz"), chunk.episodes._asdict() | extra)
        self._chunks.append(chunk)
        self._samples = self._samples + chunk.steps
        self.begun += chunk.begun

    @contextmanager
    def recording(self, limit: int) -> Iterator[OpenEpisode]:
        """Append an episode of at most `limit` steps that is played one by one, however it ends."""
        place = len(self._chunks)
        try:
            yield self.begin(place, limit)
        finally:
            self.end(place)

    def next_episode(self, total: int) -> tuple[int, int] | None:
        """The place of the next episode that `total` samples need in any case, and the most steps of it.

        None, while that depends on how long those under way will be: so neither the speed of simulators nor
        their number decides which episodes there are, or how long they may be.
        """
        place, missing, horizon = len(self._chunks), total - int(self._samples[0]), self.spec.horizon
        certain = True
        while place in self._over or place in self._under_way:
            missing -= _steps(self._over[place]) if place in self._over else horizon
            certain = certain and place in self._over
            place += 1
        if missing <= 0 or (missing < horizon and not certain):
            return None
        return place, min(missing, horizon)

    def begin(self, place: int, limit: int) -> OpenEpisode:
        """Begin to write down the episode of a place, of at most `limit` steps."""
        self._under_way[place] = OpenEpisode(self._file(OPEN, place), self.spec, limit)
        return self._under_way[place]

    def begin_again(self, place: int) -> OpenEpisode:
        """Keep apart what was written down of an episode under way, and begin anew to write it down."""
        record = self._under_way[place]
        self._keep_apart(record.close(), place)
        return self.begin(place, record.limit)

    def end(self, place: int) -> None:
        """The episode of a place is over, however it ended: it becomes a chunk after those before it."""
        played = self._under_way.pop(place).close()
        if played is None:
            self._forget(place)
        else:
            self._over[place] = played
        self._settle()

    def recover(self, again: bool = False) -> None:
        """See to the episodes that a crash left under way. For who holds the folder: others may be at work.

        Those that were over become chunks. Others broke off: they become chunks too, or are kept apart to be
        played `again`.
        """
        if self.folder is None:
            return
        places = sorted(map(_place, self.folder.glob(f"{OPEN}*")))
        self._check_places(places)
        for place in reversed(places):
            left = read_open(self._path(OPEN, place).read_bytes(), self.spec)
            # Of a chunk that is there already only the file was still to be removed.
            if place < len(self._chunks) or left is None:
                self._forget(place)
            elif again and left.lost is not None:
                self._keep_apart(left, place)
            else:
                self._over[place] = left
        self._settle()

    def _check_places(self, places: list[int]) -> None:
        """Whatever is before an episode under way has left a trace, if no chunk is missing."""
        assert self.folder is not None
        traces = {*range(len(self._chunks)), *places, *map(_place, self.folder.glob(f"{AGAIN}*"))}
        for place in places:
            if not traces.issuperset(range(place)):
                path = self._path(OPEN, place)
                raise ValueError(f"{path} comes after chunks that are missing: put them back, or remove it.")

    def _keep_apart(self, played: Recorded | None, place: int) -> None:
        if played is None:  # its file stays, to be written anew: those behind it may be looked at before
            return
        self._again.append(_steps(played))
        if self.folder is not None:
            number = len(list(self.folder.glob(f"{AGAIN}{place:06d}-*")))
            self._path(OPEN, place).rename(self._path(AGAIN, place).with_name(f"{AGAIN}{place:06d}-{number}"))
            flush_folder(self.folder)

    def _settle(self) -> None:
        """Append the episodes that are over, in the order of their places."""
        while (place := len(self._chunks)) in self._over:
            played = self._over.pop(place)
            self.append(played.episode, None if played.lost is None else np.array([played.lost]))
            if self.folder is not None:
                self._path(OPEN, place).unlink()

    def _forget(self, place: int) -> None:
        """Remove the file of an episode; one without a step stays while there are others behind it."""
        behind = any(other > place for other in (*self._over, *self._under_way))
        if self.folder is not None and (place < len(self._chunks) or not behind):
            self._path(OPEN, place).unlink()

    def _file(self, begins: str, place: int) -> Path | None:
        return None if self.folder is None else self._path(begins, place)

    def _path(self, begins: str, place: int, ends: str = "") -> Path:
        assert self.folder is not None
        return self.folder / f"{begins}{place:06d}{ends}"

    def episodes(self, seed: int, samples: int | None = None, since: int = 0) -> Episode:
        """The real episodes of a seed (axes T B), of the first chunks that hold `samples` steps.

        Those of chunks within the first `since` steps are left out.
        """
        parts: list[list[Any]] = []
        have = 0
        for chunk in self._chunks:
            if samples is not None and have >= samples:
                break
            played = np.asarray(chunk.episodes.mask)[seed].any(0)
            if have >= since:
                parts.append([np.asarray(leaf)[seed][:, played] for leaf in chunk.episodes])
            have += int(chunk.steps[seed])
        if not parts:
            raise ValueError(f"{self.folder or 'this run'} holds no episodes yet.")
        joined: list[Any] = [np.concatenate(leaves, axis=1) for leaves in zip(*parts, strict=True)]
        return Episode(*joined)

    def _read(self, path: Path) -> Chunk:
        episodes, lost = read_chunk(path)
        chunk = Chunk(check_chunk(path, episodes, self.spec), lost)
        if (seeds := len(chunk.steps)) != self.seeds:
            raise ValueError(
                f"{path} holds {seeds} seeds, this run has {self.seeds}: it is of another run. {CURE}"
            )
        return chunk


def _is_passing(name: str) -> bool:
    """Whether a file is none of the chunks: of a write, of an episode under way, or of one played again."""
    return name.startswith(".") or re.fullmatch(rf"{OPEN}\d+|{AGAIN}\d+-\d+", name) is not None


def _place(path: Path) -> int:
    return int(path.name.split("-")[1])


def _steps(played: Recorded) -> int:
    """The steps that were begun."""
    return int(np.asarray(played.episode.mask).sum()) + (played.lost or 0)


def _steps_in(path: Path, spec: Spec) -> int:
    played = read_open(path.read_bytes(), spec)
    return 0 if played is None else _steps(played)
