"""A trained team at work: each agent acts on its own observations. This file needs numpy and nothing else.

Copy it to a robot together with a policy file, or use it as `marco.load`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = Sequence[Any] | NDArray[Any]
"""One entry per agent."""

FORMAT = 1
"""The version of the policy file's format."""


@dataclass(frozen=True)
class Member:
    """One agent, as the policy file describes it."""

    name: str
    num_actions: int
    observation_width: int
    action_labels: tuple[str, ...]


class AgentPolicy:
    """One agent, alone: it needs no other agent, no central state and no communication."""

    def __init__(self, index: int, member: Member, weights: dict[str, NDArray[np.float32]]) -> None:
        self.index, self.name, self.num_actions = index, member.name, member.num_actions
        self.action_labels = member.action_labels
        self._width = member.observation_width
        self._weights = weights
        self.reset()

    def reset(self) -> None:
        """Forget: a new episode begins."""
        self._memory = np.zeros(self._weights["memory"].shape[0], np.float32)
        self._previous = -1

    def act(self, observation: ArrayLike, available: ArrayLike | None = None) -> int:
        """The best available action after what was seen since `reset`; call it once per step."""
        scores = self.scores(observation)
        if available is not None:
            scores = np.where(self._check_mask(available), scores, -np.inf)
        self._previous = int(np.argmax(scores))
        return self._previous

    def scores(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Update the memory with an observation; the scores of the actions."""
        weights, x = self._weights, self._inputs(observation)
        x = np.maximum(x @ weights["encoder"] + weights["encoder_bias"], 0.0)
        seen = np.split(x @ weights["input"] + weights["input_bias"], 3)
        kept = np.split(self._memory @ weights["memory"] + weights["memory_bias"], 3)
        update = _sigmoid(seen[1] + kept[1])
        new = np.tanh(seen[2] + _sigmoid(seen[0] + kept[0]) * kept[2])
        self._memory = (1.0 - update) * new + update * self._memory
        heads = self._memory @ weights["head"] + weights["head_bias"]
        return (weights["table"] @ heads)[: self.num_actions].astype(np.float32)

    def _inputs(self, observation: ArrayLike) -> NDArray[np.float32]:
        seen = np.asarray(observation, np.float32).ravel()
        padded, actions, agents = (int(n) for n in self._weights["sizes"])
        if seen.size not in (self._width, padded):
            raise ValueError(f"agent {self.name!r} sees {self._width} numbers, got {seen.size}.")
        if not np.isfinite(seen).all():
            raise ValueError(f"agent {self.name!r} was shown {seen}: every number must be finite.")
        x = np.zeros(padded + actions + agents, np.float32)
        x[: seen.size] = seen
        if self._previous >= 0:
            x[padded + self._previous] = 1.0
        x[padded + actions + self.index] = 1.0
        return x

    def _check_mask(self, available: ArrayLike) -> NDArray[np.bool_]:
        mask = np.asarray(available, bool).ravel()[: self.num_actions]
        if mask.size != self.num_actions or not mask.any():
            raise ValueError(
                f"agent {self.name!r} has {self.num_actions} actions, of which one at least must be "
                f"available, got the mask {np.asarray(available).astype(int).tolist()}."
            )
        return mask


class TeamPolicy:
    """All agents of a team, side by side; none sees what another sees."""

    def __init__(
        self, agents: Sequence[AgentPolicy], facts: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> None:
        self.agents, self.facts, self.arrays = tuple(agents), facts, arrays

    def reset(self) -> None:
        """Forget: a new episode begins."""
        for agent in self.agents:
            agent.reset()

    def act(self, observations: Rows, available: Rows | None = None) -> list[int]:
        """One action per agent, from one observation (and one mask, where actions are limited) per agent."""
        masks: Rows = [None] * len(self.agents) if available is None else available
        if len(observations) != len(self.agents) or len(masks) != len(self.agents):
            raise ValueError(
                f"the team has {len(self.agents)} agents, "
                f"got {len(observations)} observations and {len(masks)} masks."
            )
        return [a.act(o, m) for a, o, m in zip(self.agents, observations, masks, strict=True)]

    def agent(self, index: int) -> AgentPolicy:
        """One agent, to act alone."""
        if not 0 <= index < len(self.agents):
            raise ValueError(f"the team has agents 0 to {len(self.agents) - 1}, got {index}.")
        return self.agents[index]


def load(path: str | Path, seed: int | None = None) -> TeamPolicy:
    """The team in a policy file, or of a run's folder; of its lowest seed, if none is given."""
    file = _policy_file(Path(path), seed)
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        facts = json.loads(str(arrays.pop("facts")))
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ValueError(f"{file} is no policy file, or is damaged: {error}") from error
    if facts.get("format") != FORMAT:
        raise ValueError(
            f"{file} has the format {facts.get('format')}; this MARCO reads {FORMAT}: upgrade it."
        )
    members = [
        Member(**{**member, "action_labels": tuple(member["action_labels"])}) for member in facts["agents"]
    ]
    return TeamPolicy(
        [AgentPolicy(i, m, _own(arrays, i, facts["shared"])) for i, m in enumerate(members)], facts, arrays
    )


def _policy_file(path: Path, seed: int | None) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"there is no policy file and no run at {path}.")
    found = {int(file.stem.removeprefix("seed-")): file for file in path.glob("policy/seed-*.npz")}
    if not found:
        raise ValueError(f"{path} holds no policy yet: it is written when training ends.")
    if seed is not None and seed not in found:
        raise ValueError(f"{path} has no seed {seed}: it has {', '.join(map(str, sorted(found)))}.")
    return found[min(found) if seed is None else seed]


def _own(arrays: dict[str, NDArray[Any]], index: int, shared: bool) -> dict[str, NDArray[Any]]:
    """What agent `index` needs: the shared weights, or its own of the stacked ones."""
    stacked = {"table"} if shared else set(arrays) - {"sizes"}
    return {name: array[index] if name in stacked else array for name, array in arrays.items()}


def _sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)
