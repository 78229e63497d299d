"""What the adapters share: finite spaces in parts, and the names of time limits."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from marco.types import ActionComponent, Continuous, Feature, binary

RewardRule = str
"""How the agents' rewards become the team's: `mean`, `sum`, or the name of the one agent whose reward counts.

Absent agents count as 0, so that the scale never changes.
"""

LIMIT_NAMES = (
    "max_cycles",
    "max_steps",
    "max_episode_steps",
    "episode_length",
    "episode_limit",
    "num_steps",
    "num_iters",
    "horizon",
)
"""The attributes in which environments keep their time limit."""


MOST_FEATURES = 1_000
"""The most features that an array is taken apart into: a picture of more pixels stays one."""


class Part(NamedTuple):
    """One number of a member of a finite space: its classes are `first`, `first` + 1, ..."""

    name: str
    first: int
    size: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes counted from 0 need no names."""
        return tuple(str(self.first + index) for index in range(self.size)) if self.first else ()


def parts_of(space: Any, name: str) -> tuple[Part, ...]:
    """The parts of a Discrete, MultiDiscrete or MultiBinary space, of Gymnasium or JaxMARL."""
    counts = getattr(space, "nvec", getattr(space, "num_categories", None))
    if counts is None:
        counts = np.full(space.shape, 2) if space.shape else space.n
    sizes = np.asarray(counts).astype(np.int64).ravel()
    first = np.broadcast_to(np.asarray(getattr(space, "start", 0)).ravel(), sizes.shape)
    single = counts is getattr(space, "n", None)
    names = [name] if single else [f"{name}.{i}" for i in range(sizes.size)]
    return tuple(map(Part, names, first.tolist(), sizes.tolist()))


def array_features(name: str, shape: Sequence[int], dtype: Any, *, apart: bool) -> tuple[Feature, ...]:
    """The features of an array, row by row: of the shape (n, d) n features of d numbers, as n places have.

    Truth values are yes or no. The numbers of a vector are `apart` where each stands for a thing, as in a
    field of a state; of any other vector nobody knows which numbers belong together.
    """
    size = math.prod(shape)
    yes_or_no = np.dtype(dtype) == np.bool_
    rows = size if yes_or_no or (apart and len(shape) == 1) else math.prod(shape[:-1])
    whole = not shape or (len(shape) == 1 and not apart and not yes_or_no)
    if not size:  # an agent that sees nothing may say so by an array without numbers
        return ()
    names = [name] if whole or rows > MOST_FEATURES else [f"{name} {row}" for row in range(rows)]
    if yes_or_no and len(names) == size:
        return tuple(map(binary, names))
    return tuple(Continuous(one, size // len(names)) for one in names)


def action_components(space: Any) -> tuple[ActionComponent, ...]:
    """The components of the actions of a finite space."""
    return tuple(ActionComponent(part.name, part.size, part.labels) for part in parts_of(space, "action"))


def count(parts: tuple[Part, ...] | tuple[ActionComponent, ...]) -> int:
    """The number of combinations of all parts."""
    return math.prod(part.size for part in parts)


def time_limit(*holders: Any) -> int | None:
    """The time limit that an environment keeps in one of its attributes."""
    for holder in holders:
        for name in LIMIT_NAMES:
            value = getattr(holder, name, None)
            if isinstance(value, int | np.integer) and value > 0:
                return int(value)
    return None


def check_reward(rule: object, agents: Sequence[str]) -> str:
    """The rule, or an error that names the choices. An agent may be called by a number."""
    if str(rule) in ("mean", "sum", *agents):
        return str(rule)
    raise ValueError(f"reward must be mean, sum or an agent ({', '.join(agents)}), got {rule!r}.")


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a value that is none of a Literal's."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}.")
