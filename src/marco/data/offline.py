"""Offline data: real episodes from the files of a run, or from arrays of the user's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marco.checks import same_world
from marco.data.chunk import check_chunk, read_chunk
from marco.data.storage import read_json, save_arrays
from marco.types import Episode, Spec


class LoggedEpisode(NamedTuple):
    """One real episode of T steps as numpy arrays, without padding in time."""

    observation: Any
    """T+1 N O: what every agent saw, before each step and after the last."""
    state: Any
    """T+1 S."""
    actions: Any
    """T N."""
    reward: Any
    """T: the team's."""
    terminated: bool
    """Whether the environment itself ended it; the time limit does not count."""
    available: Any = None
    """T+1 N A; every action that an agent has, if not given."""


def write_logged(path: Path, spec: Spec, episodes: Sequence[LoggedEpisode]) -> None:
    """Write episodes as a file for `marco train --data`."""
    if not episodes:
        raise ValueError(f"{path} would hold no episodes: give at least one.")
    columns = [_padded(spec, number, one) for number, one in enumerate(episodes)]
    fields: list[Any] = [np.stack(leaves, axis=1)[None] for leaves in zip(*columns, strict=True)]
    chunk = Episode(*fields)
    check_chunk(Path(path), chunk, spec)
    save_arrays(Path(path), chunk._asdict())


def read_logged(
    paths: Sequence[Path],
    world: str,
    settings: dict[str, Any],
    spec: Spec,
    defaults: dict[str, Any] | None = None,
) -> list[Episode]:
    """The chunks (axes seeds T B) of files, data folders or run folders, in the order given.

    Settings are as config.json has them; a run that was not given one has that of `defaults`.
    """
    chunks: list[Episode] = []
    for path in paths:
        files = _files(Path(path))
        _check_world(files[0], world, settings, defaults or {})
        for file in files:
            stored = read_chunk(file)
            chunk = check_chunk(file, stored.episodes, spec)
            if np.asarray(chunk.mask).any():
                chunks.append(chunk)
            elif stored.lost is None:  # an episode that broke off in its first step was seen by nobody
                raise ValueError(f"{file} holds no step: leave it out.")
    return chunks


def for_seeds(chunks: list[Episode], seeds: int) -> list[Episode]:
    """Each seed its own episodes where there are as many seeds, else for all of them those of the first."""

    def spread(leaf: Any) -> Any:
        return np.asarray(leaf) if len(leaf) == seeds else np.repeat(np.asarray(leaf)[:1], seeds, axis=0)

    chunks = [Episode(*map(spread, chunk)) for chunk in chunks]
    steps = sum((np.asarray(chunk.mask).sum((1, 2)) for chunk in chunks), np.zeros(seeds, int))
    if chunks and np.min(steps) == 0:
        raise ValueError("--data holds no step for some seed: give files that hold real steps.")
    if np.min(steps) != np.max(steps):
        raise ValueError(
            f"--data holds from {np.min(steps)} to {np.max(steps)} steps for different seeds: give all "
            "chunks of a run, or train another number of seeds, which then all learn from those of the first."
        )
    return chunks


def _padded(spec: Spec, number: int, one: LoggedEpisode) -> list[np.ndarray]:
    """The fields of an Episode, padded to the horizon: the last timestep is repeated, with no reward."""
    actions = np.asarray(one.actions)
    steps, idle = len(actions), spec.horizon - len(actions)
    if not 1 <= steps <= spec.horizon:
        raise ValueError(f"episode {number} has {steps} steps; {spec.name} has from 1 to {spec.horizon}.")
    available = one.available
    if available is None:
        available = np.broadcast_to(spec.actions_exist, (steps + 1, *spec.actions_exist.shape))
    timesteps = [np.asarray(leaf) for leaf in (one.observation, one.state, available)]
    if any(len(leaf) != steps + 1 for leaf in timesteps) or len(one.reward) != steps:
        raise ValueError(
            f"episode {number} has {steps} actions: it needs as many rewards, and one timestep more of "
            "observation, state and available."
        )
    last = np.arange(spec.horizon) == steps - 1
    return [
        *(np.concatenate([leaf, np.repeat(leaf[-1:], idle, axis=0)]) for leaf in timesteps),
        np.concatenate([actions, np.repeat(actions[-1:], idle, axis=0)]),
        np.concatenate([np.asarray(one.reward, np.float32), np.zeros(idle, np.float32)]),
        last & one.terminated,
        last & (not one.terminated and steps == spec.horizon),
        np.arange(spec.horizon) < steps,
    ]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.glob("chunk-*.npz")) or sorted(path.glob("data/chunk-*.npz"))
    if not found:
        raise ValueError(f"--data: {path} is no file and no folder with chunks: give those of a run.")
    return found


def _check_world(file: Path, world: str, settings: dict[str, Any], defaults: dict[str, Any]) -> None:
    """A file in the folder of a run is of that run's environment."""
    config = file.parent.parent / "config.json"
    if file.parent.name != "data" or not config.exists():
        return
    theirs = read_json(config, "Mend it, or remove it: then the data are taken without it.")
    found = theirs.get("world_settings")
    complete = defaults | found if isinstance(found, dict) else found
    named = theirs.get("world")
    if not isinstance(named, str) or not same_world(named, world) or complete != settings:
        raise ValueError(
            f"{config} is of {named!r} with the settings {theirs.get('world_settings')}, "
            f"this run is of {world!r} with {settings}: give data of the same environment."
        )
