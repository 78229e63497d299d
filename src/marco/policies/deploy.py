"""A trained team at work: each agent acts on its own observations. This file needs numpy and nothing else.

Copy it to a robot together with a policy file, or use it as `marco.load`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = Sequence[Any] | NDArray[Any]
"""One entry per agent."""

FORMAT = 2
"""The version of the policy file's format. Those of version 1 show the network observations as they are."""

NEEDED = "its facts need world, shared, factored and agents, or the kind controllers in place of two of them"


@dataclass(frozen=True)
class Member:
    """One agent, as the policy file describes it."""

    name: str
    num_actions: int
    observation_width: int
    action_labels: tuple[str, ...]


class Network:
    """What one agent remembers and decides by: a recurrent network."""

    def __init__(self, index: int, weights: dict[str, NDArray[np.float32]]) -> None:
        self._index, self._weights = index, weights
        self.reset()

    def reset(self) -> None:
        """Forget: a new episode begins."""
        self._memory = np.zeros(self._weights["memory"].shape[0], np.float32)

    def scores(self, seen: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        """The scores of the actions after one more observation."""
        weights, x = self._weights, self._inputs(seen, previous)
        x = np.maximum(x @ weights["encoder"] + weights["encoder_bias"], 0.0)
        new_in = np.split(x @ weights["input"] + weights["input_bias"], 3)
        kept = np.split(self._memory @ weights["memory"] + weights["memory_bias"], 3)
        update = _sigmoid(new_in[1] + kept[1])
        new = np.tanh(new_in[2] + _sigmoid(new_in[0] + kept[0]) * kept[2])
        self._memory = (1.0 - update) * new + update * self._memory
        heads = self._memory @ weights["head"] + weights["head_bias"]
        return np.asarray(weights["table"] @ heads, np.float32)

    def _inputs(self, seen: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        padded, actions, agents = (int(n) for n in self._weights["sizes"])
        x = np.zeros(padded + actions + agents, np.float32)
        x[: seen.size] = (seen - self._weights["shift"][: seen.size]) * self._weights["scale"][: seen.size]
        if previous >= 0:
            x[padded + previous] = 1.0
        x[padded + actions + self._index] = 1.0
        return x


class Controller:
    """What one agent of a planned team decides by: a node for what was observed, an action for the node."""

    def __init__(self, arrays: dict[str, NDArray[Any]], num_actions: int) -> None:
        self._actions, self._successors = arrays["actions"], arrays["successors"]
        self._observations, self._num_actions = arrays["observations"], num_actions
        self.reset()

    def reset(self) -> None:
        """Forget: a new episode begins."""
        self._time, self._node = 0, 0

    def scores(self, seen: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        """1 for the action of the next node. An observation counts as the nearest one that is known."""
        away = np.square(self._observations[:, : seen.size] - seen).sum(-1)
        now = min(self._time, len(self._actions) - 1)
        self._node = int(self._successors[now, self._node, int(np.argmin(away))])
        self._time += 1
        return np.eye(self._num_actions, dtype=np.float32)[int(self._actions[now, self._node])]


class AgentPolicy:
    """One agent, alone: it needs no other agent, no central state and no communication."""

    def __init__(self, index: int, member: Member, padded: int, mind: Network | Controller) -> None:
        self.index, self.name, self.num_actions = index, member.name, member.num_actions
        self.action_labels = member.action_labels
        self._width, self._padded, self._mind = member.observation_width, padded, mind
        self.reset()

    def reset(self) -> None:
        """Forget: a new episode begins."""
        self._mind.reset()
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
        seen = np.asarray(observation, np.float32).ravel()
        if seen.size not in (self._width, self._padded):
            raise ValueError(f"agent {self.name!r} sees {self._width} numbers, got {seen.size}.")
        if not np.isfinite(seen).all():
            raise ValueError(f"agent {self.name!r} was shown {seen}: every number must be finite.")
        return self._mind.scores(seen, self._previous)[: self.num_actions]

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
    """The team in a policy file, or of a run's folder; of its lowest seed, if none is given.

    The file may come from anyone: it holds numbers and words, and all of them are checked before use.
    """
    file = _policy_file(Path(path), seed)
    try:
        return _team(read_arrays(file))
    except ValueError as error:
        raise ValueError(
            f"{file} is no policy file, or is damaged: {error}. Copy it again; `marco resume` writes that of "
            "a run of MARCO anew."
        ) from error


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, by name. Reading runs no code, and takes no more memory than the file has.

    So compressed arrays, which may be a million times larger than their file, are refused; MARCO writes none.
    """
    try:
        with ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.compress_type != ZIP_STORED for member in members):
                raise ValueError("its arrays are compressed: write it by np.savez")
            if sum(member.file_size for member in members) > file.stat().st_size:
                raise ValueError("its arrays are larger than the file")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except Exception as error:  # on damaged bytes zipfile and numpy fail in any way whatever
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _array(content: bytes) -> NDArray[Any]:
    """An array from the content of an .npy file: what its header says must be there."""
    stream = BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("it has an array of an unknown format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biufU" or min(shape, default=0) < 0 or size != len(content) - stream.tell():
        raise ValueError(f"it has an array of the shape {shape} and type {dtype}, and not its numbers")
    stream.seek(0)
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _team(arrays: dict[str, NDArray[Any]]) -> TeamPolicy:
    facts = _facts(arrays.pop("facts", None))
    if facts.get("format") not in (1, FORMAT):
        raise ValueError(f"it has the format {facts.get('format')!r}, this MARCO reads 1 to {FORMAT}")
    match facts:
        case {"world": str(), "agents": [_, *_] as agents}:
            members = [_member(index, agent) for index, agent in enumerate(agents)]
        case _:
            raise ValueError(NEEDED)
    padded = max(member.observation_width for member in members)
    match facts:
        case {"kind": "controllers"}:
            _check_controllers(arrays, members)
            minds: list[Any] = [
                Controller({name: array[i] for name, array in arrays.items()}, member.num_actions)
                for i, member in enumerate(members)
            ]
        case {"shared": bool(shared), "factored": bool()}:
            if facts["format"] == 1:
                shape = (len(members), padded)
                arrays |= {"shift": np.zeros(shape, np.float32), "scale": np.ones(shape, np.float32)}
            _check_arrays(arrays, members, shared)
            minds = [Network(i, _own(arrays, i, shared)) for i in range(len(members))]
        case _:
            raise ValueError(NEEDED)
    agents = [AgentPolicy(i, members[i], padded, mind) for i, mind in enumerate(minds)]
    return TeamPolicy(agents, facts, arrays)


def _facts(text: NDArray[Any] | None) -> dict[str, Any]:
    try:
        facts = json.loads(str(text))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise ValueError("it has no facts in JSON")
    return facts


def _member(index: int, facts: Any) -> Member:
    match facts:
        case {
            "name": str(name),
            "num_actions": int(actions),
            "observation_width": int(width),
            "action_labels": [*labels],
        } if 1 <= actions == len(labels) and width >= 0 and all(isinstance(label, str) for label in labels):
            return Member(name, actions, width, tuple(labels))
    raise ValueError(
        f"its agent {index} needs name, num_actions, observation_width and as many action_labels as actions"
    )


def _check_arrays(arrays: dict[str, NDArray[Any]], members: list[Member], shared: bool) -> None:
    """Refuse weights that do not fit together: a file must not fail only when a robot acts."""
    last = {name: array.shape[-1] if array.ndim else 0 for name, array in arrays.items()}
    seen, actions = max(m.observation_width for m in members), max(m.num_actions for m in members)
    encoded, gates, heads = (last.get(f"{name}_bias", 0) for name in ("encoder", "memory", "head"))
    sizes, own = (seen, actions, len(members)), () if shared else (len(members),)
    needed = {
        "encoder": (*own, sum(sizes), encoded),
        "encoder_bias": (*own, encoded),
        "input": (*own, encoded, gates),
        "input_bias": (*own, gates),
        "memory": (*own, gates // 3, gates),
        "memory_bias": (*own, gates // 3 * 3),
        "head": (*own, gates // 3, heads),
        "head_bias": (*own, heads),
        "table": (len(members), actions, heads),
        "shift": (len(members), seen),
        "scale": (len(members), seen),
        "sizes": (3,),
    }
    found = {name: array.shape for name, array in arrays.items()}
    for name in needed | found:
        if needed.get(name) != found.get(name):
            raise ValueError(
                f"its array {name!r} has the shape {found.get(name)}, its agents need {needed.get(name)}"
            )
        if arrays[name].dtype.kind not in "iuf" or not np.isfinite(arrays[name]).all():
            raise ValueError(f"its array {name!r} holds what is no finite number")
    if tuple(arrays["sizes"].tolist()) != sizes:
        raise ValueError(f"its sizes are {arrays['sizes'].tolist()}, those of its agents {list(sizes)}")


def _check_controllers(arrays: dict[str, NDArray[Any]], members: list[Member]) -> None:
    """Refuse controllers that lead nowhere, or to actions that an agent does not have."""
    team, padded = len(members), max(member.observation_width for member in members)
    needed = {"actions": ("iu", 3), "successors": ("iu", 4), "observations": ("f", 3)}
    if set(arrays) != set(needed):
        raise ValueError(f"its arrays are {sorted(arrays)}, controllers need {sorted(needed)}")
    for name, (kinds, axes) in needed.items():
        array = arrays[name]
        if array.dtype.kind not in kinds or array.ndim != axes or len(array) != team or not array.size:
            raise ValueError(f"its array {name!r} has the shape {array.shape} and type {array.dtype}")
    actions, leads, known = (arrays[name] for name in needed)
    if leads.shape[:3] != actions.shape or known.shape[1:] != (leads.shape[3], padded):
        raise ValueError("its controllers and their observations do not fit together")
    if leads.min() < 0 or leads.max() >= actions.shape[2] or not np.isfinite(known).all():
        raise ValueError("its controllers lead to nodes that are not there")
    most = np.array([member.num_actions for member in members])
    if actions.min() < 0 or (actions.max((1, 2)) >= most).any():
        raise ValueError("its controllers have actions that their agents do not have")


def _policy_file(path: Path, seed: int | None) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"there is no policy file and no run at {path}.")
    files = {file.stem.removeprefix("seed-"): file for file in path.glob("policy/seed-*.npz")}
    found = {int(number): file for number, file in files.items() if number.isdecimal()}
    if not found:
        raise ValueError(f"{path} holds no policy yet: it is written when training ends.")
    if seed is not None and seed not in found:
        raise ValueError(f"{path} has no seed {seed}: it has {', '.join(map(str, sorted(found)))}.")
    return found[min(found) if seed is None else seed]


def _own(arrays: dict[str, NDArray[Any]], index: int, shared: bool) -> dict[str, NDArray[Any]]:
    """What agent `index` needs: the shared weights, or its own of the stacked ones."""
    stacked = {"table", "shift", "scale"} if shared else set(arrays) - {"sizes"}
    return {name: array[index] if name in stacked else array for name, array in arrays.items()}


def _sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)
