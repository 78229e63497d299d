"""Real episodes, append-only: on disk each chunk is written whole or not at all, before it is learned from.

data/chunk-000000.npz, chunk-000001.npz, ... hold the fields of an Episode with the axes seeds T B in front
(T + 1 for observations, states and masks of actions). Steps with `mask` False were never taken; episodes
without any are padding. A sample is a step with `mask` True, and their number is what has been spent so far.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from marco.data.storage import load_arrays, save_arrays
from marco.types import Episode, Spec

TYPES = {"actions": np.int32, "available": bool, "terminated": bool, "truncated": bool, "mask": bool}
"""Of a chunk's arrays; the rest are numbers."""

CURE = "Put it back from a copy, or learn from the sound files: marco train WORLD --data FILE ..."


class Dataset:
    """All real samples of a run, for every seed; in memory alone where no folder is given."""

    def __init__(self, folder: Path | None, spec: Spec, seeds: int) -> None:
        self.folder, self.spec, self.seeds = folder, spec, seeds
        self._chunks: list[Episode] = [] if folder is None else self._read_all(folder)
        self._samples: np.ndarray = sum(map(_steps, self._chunks), np.zeros(seeds, int))

    def _read_all(self, folder: Path) -> list[Episode]:
        folder.mkdir(parents=True, exist_ok=True)
        chunks = [self._read(path) for path in sorted(folder.glob("chunk-*.npz"))]
        expected = [f"chunk-{index:06d}.npz" for index in range(len(chunks))]
        # A write that never finished leaves a hidden file: nothing was learned from it.
        found = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
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

    def append(self, episodes: Episode) -> None:
        """Write a chunk (axes seeds T B); when this returns it is on the disk."""
        chunk: Episode = jax.tree.map(np.asarray, episodes)
        if self.folder is not None:
            save_arrays(self.folder / f"chunk-{len(self._chunks):06d}.npz", chunk._asdict())
        self._chunks.append(chunk)
        self._samples = self._samples + _steps(chunk)

    def episodes(self, seed: int, samples: int | None = None, since: int = 0) -> Episode:
        """The real episodes of a seed (axes T B), of the first chunks that hold `samples` steps.

        Those of chunks within the first `since` steps are left out.
        """
        parts: list[list[Any]] = []
        have = 0
        for chunk in self._chunks:
            if samples is not None and have >= samples:
                break
            mask = np.asarray(chunk.mask)[seed]
            played = mask.any(0)
            if have >= since:
                parts.append([np.asarray(leaf)[seed][:, played] for leaf in chunk])
            have += int(mask.sum())
        if not parts:
            raise ValueError(f"{self.folder or 'this run'} holds no episodes yet.")
        joined: list[Any] = [np.concatenate(leaves, axis=1) for leaves in zip(*parts, strict=True)]
        return Episode(*joined)

    def _read(self, path: Path) -> Episode:
        chunk = check_chunk(path, read_chunk(path), self.spec)
        if (seeds := len(chunk.mask)) != self.seeds:
            raise ValueError(
                f"{path} holds {seeds} seeds, this run has {self.seeds}: it is of another run. {CURE}"
            )
        return chunk


def read_chunk(path: Path) -> Episode:
    """The episodes of a file (axes seeds T B)."""
    arrays = load_arrays(path, CURE)
    if set(arrays) != set(Episode._fields):
        raise ValueError(f"{path} is no chunk of real episodes: it holds {list(arrays)}. {CURE}")
    return Episode(**arrays)


def check_chunk(path: Path, chunk: Episode, spec: Spec) -> Episode:
    """The chunk with its arrays in their types; refused if it cannot be of an environment of this shape."""
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
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise ValueError(f"{path}: {name} holds what are no finite numbers: leave these episodes out.")
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


def _steps(chunk: Episode) -> np.ndarray:
    """The real steps in a chunk, of each seed."""
    return np.asarray(chunk.mask).sum((1, 2))
