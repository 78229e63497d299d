"""Real episodes, append-only: on disk each chunk is written whole or not at all, before it is learned from.

data/chunk-000000.npz, chunk-000001.npz, ... hold the fields of an Episode with the axes seeds T B in front
(T + 1 for observations, states and masks of actions). Steps with `mask` False were never taken; episodes
without any are padding. A sample is a step with `mask` True, and their number is what has been spent so far.

A file with `lost` is of an episode that broke off: so many steps of each seed were begun without an outcome
ever being shown. They are samples too, from which nothing can be learned.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from marco.data.open_episode import OpenEpisode, Recorded, read_open
from marco.data.storage import load_arrays, save_arrays
from marco.types import Episode, Spec

TYPES = {"actions": np.int32, "available": bool, "terminated": bool, "truncated": bool, "mask": bool}
"""Of a chunk's arrays; the rest are numbers."""

CURE = "Put it back from a copy, or learn from the sound files: marco train WORLD --data FILE ..."

OPEN = "open-"
"""How the files of episodes under way begin; the number is that of the chunk to be."""


class BrokenOff(NamedTuple):
    """The episodes that broke off: by an error of the environment, or with the process."""

    episodes: int
    steps: int
    """All steps of these episodes, which are among the samples."""


class Chunk(NamedTuple):
    """What a file holds."""

    episodes: Episode
    lost: np.ndarray | None = None
    """Of an episode that broke off: the steps of each seed without an outcome."""

    @property
    def steps(self) -> np.ndarray:
        """The real steps of each seed."""
        shown = np.asarray(self.episodes.mask).sum((1, 2))
        return shown if self.lost is None else shown + self.lost

    @property
    def begun(self) -> int:
        """Episodes of the first seed; one that broke off may have shown no step."""
        return 1 if self.lost is not None else int(np.asarray(self.episodes.mask)[0].any(0).sum())


class Dataset:
    """All real samples of a run, for every seed; in memory alone where no folder is given."""

    def __init__(self, folder: Path | None, spec: Spec, seeds: int) -> None:
        self.folder, self.spec, self.seeds = folder, spec, seeds
        self._chunks: list[Chunk] = [] if folder is None else self._read_all(folder)
        self._samples: np.ndarray = sum((chunk.steps for chunk in self._chunks), np.zeros(seeds, int))
        self.begun = sum(chunk.begun for chunk in self._chunks)
        """Episodes of the first seed so far, those that broke off included."""

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

    def append(self, episodes: Episode, lost: np.ndarray | None = None) -> None:
        """Write a chunk (axes seeds T B); when this returns it is on the disk."""
        checked = check_chunk(self.spec.name, jax.tree.map(np.asarray, episodes), self.spec)
        chunk = Chunk(checked, lost)
        if self.folder is not None:
            extra = {} if lost is None else {"lost": lost}
            save_arrays(self._file("chunk-", ".npz"), chunk.episodes._asdict() | extra)
        self._chunks.append(chunk)
        self._samples = self._samples + chunk.steps
        self.begun += chunk.begun

    @contextmanager
    def recording(self, limit: int) -> Iterator[OpenEpisode]:
        """Append an episode of at most `limit` steps that is played one by one, however it ends."""
        path = None if self.folder is None else self._file(OPEN)
        record = OpenEpisode(path, self.spec, limit)
        try:
            yield record
        finally:
            self._settle(record.close(), path)

    def recover(self) -> None:
        """Append what a crash left of an episode. For who holds the folder: it may be under way elsewhere."""
        for path in [] if self.folder is None else sorted(self.folder.glob(f"{OPEN}*")):
            if path.name > self._file(OPEN).name:
                raise ValueError(f"{path} comes after chunks that are missing: put them back, or remove it.")
            # Of a chunk that is there already only the file was still to be removed.
            left = read_open(path.read_bytes(), self.spec) if path == self._file(OPEN) else None
            self._settle(left, path)

    def _settle(self, played: Recorded | None, path: Path | None) -> None:
        if played is not None:
            self.append(played.episode, None if played.lost is None else np.array([played.lost]))
        if path is not None:
            path.unlink()

    def _file(self, begins: str, ends: str = "") -> Path:
        """The file of the next chunk."""
        assert self.folder is not None
        return self.folder / f"{begins}{len(self._chunks):06d}{ends}"

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
    """Whether a file is none of the chunks, and soon gone: of a write, or of an episode under way."""
    return name.startswith(".") or (name.startswith(OPEN) and name.removeprefix(OPEN).isdigit())


def read_chunk(path: Path) -> Chunk:
    """The episodes of a file (axes seeds T B)."""
    arrays = load_arrays(path, CURE)
    lost = arrays.pop("lost", None)
    if set(arrays) != set(Episode._fields):
        raise ValueError(f"{path} is no chunk of real episodes: it holds {list(arrays)}. {CURE}")
    seeds = arrays["mask"].shape[:1]
    if lost is not None and (lost.dtype.kind != "i" or lost.shape != seeds or (lost < 0).any()):
        raise ValueError(f"{path}: lost is {lost!r}, and must count the steps of each seed. {CURE}")
    return Chunk(Episode(**arrays), lost)


def check_chunk(path: Path | str, chunk: Episode, spec: Spec) -> Episode:
    """The chunk with its arrays in their types; refused if it cannot be of an environment of this shape.

    `path` is the file, or whoever the chunk comes from.
    """
    found: dict[str, Any] = {}
    seeds, episodes = (*np.shape(chunk.mask), 0, 0, 0)[0:3:2]
    for name, shape in chunk_shapes(spec).items():
        array = np.asarray(getattr(chunk, name))
        if array.shape != (seeds, shape[0], episodes, *shape[1:]):
            raise ValueError(
                f"{path}: {name} has the shape {array.shape}; an environment like {spec.name} needs seeds, "
                f"{shape[0]}, episodes{''.join(f', {size}' for size in shape[1:])}: it is of another "
                f"environment. {CURE}"
            )
        kinds = "iu" if name == "actions" else "biuf"
        if array.dtype.kind not in kinds or not np.isfinite(array).all():
            raise ValueError(
                f"{path}: {name} holds what are no {'whole' if kinds == 'iu' else 'finite'} numbers, from "
                "which nothing can be learned: mend the environment, or leave these episodes out."
            )
        found[name] = array.astype(TYPES.get(name, np.float32), copy=False)
    counts = np.array([agent.num_actions for agent in spec.agents])
    if not ((found["actions"] >= 0) & (found["actions"] < counts)).all():
        raise ValueError(
            f"{path}: some actions are not among those of {spec.name}: it is of another environment. {CURE}"
        )
    return Episode(**found)


def chunk_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The shapes of a chunk's arrays without seeds and episodes: time first."""
    timesteps, steps, team = spec.horizon + 1, spec.horizon, spec.num_agents
    return {
        "observation": (timesteps, team, spec.observation_width),
        "state": (timesteps, spec.state_width),
        "available": (timesteps, team, spec.num_actions),
        "actions": (steps, team),
        "reward": (steps,),
        "terminated": (steps,),
        "truncated": (steps,),
        "mask": (steps,),
    }
