"""A file of real episodes: read, and refused if it cannot be of an environment of this shape."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marco.data.storage import load_arrays
from marco.types import Episode, Spec

TYPES = {"actions": np.int32, "available": bool, "terminated": bool, "truncated": bool, "mask": bool}
"""Of a chunk's arrays; the rest are numbers."""

CURE = "Put it back from a copy, or learn from the sound files: marco train WORLD --data FILE ..."


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
