"""The settings of Algorithm 1."""

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from marco.learners.base import Learner
from marco.model.environment import ResampleMember
from marco.model.fit import ModelConfig
from marco.model.uncertainty import BonusName
from marco.model.views import ModelKind

Collector = Literal["explorer", "team", "random"]


@dataclass(frozen=True)
class MarcoConfig:
    """The letters of Algorithm 1, and how long each of its lines goes on."""

    samples: int
    """The budget: real steps per seed. Never one more is taken."""
    first: int
    """Samples of the first chunk, collected at random."""
    chunk: int
    """Samples of each later chunk."""
    team: Learner
    explorer: Learner
    model: ModelConfig
    kind: ModelKind = "centralised"
    resample_member: ResampleMember = "step"
    collector: Collector = "explorer"
    """Who collects the later chunks: the exploration policy, or, to see what it is good for, another."""
    epsilon: float = 0.1
    """The share of random actions in collection."""
    lam: float = 2.0
    """lambda: the weight of what the ensemble disagrees on."""
    bonus: BonusName = "variance"
    explorer_steps: int = 100_000
    """Model steps for the exploration policy after every refit."""
    warm_explorer: bool = True
    """Whether the exploration policy goes on from what it was before the refit."""
    team_steps: int = 0
    """Model steps for the team after every refit, before the last."""
    final_updates: int = 3_000
    """Updates of the team in the last model."""
    demonstration_share: float = 0.0
    """The share of imagined episodes that begin by retracing a real one, at first: it falls to nothing by
    half of each training."""
    restarts: int = 1
    """In the last model so many teams are trained from scratch; the best is kept, chosen inside the model.

    0: the team that was trained all along is trained on."""

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.samples:
            raise ValueError(f"first={self.first} must be from 1 to the budget of {self.samples} samples.")
        for name in ("chunk", "final_updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("explorer_steps", "team_steps", "restarts", "lam"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}.")
        for name in ("epsilon", "demonstration_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}.")
        if self.collector == "team" and self.team_steps == 0:
            raise ValueError("collector='team' needs a team that learns on the way: give team_steps.")

    @property
    def schedule(self) -> tuple[int, ...]:
        """How many samples there are to be at each fit of the model."""
        return (*range(self.first, self.samples, self.chunk), self.samples)


def checked_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Changes of settings by name, as a command line gives them, in the types of the settings."""
    kinds = get_type_hints(MarcoConfig)
    for name in changes:
        if name not in kinds:
            raise ValueError(f"MARCO has no setting {name!r}: it has {', '.join(kinds)}.")
    return {name: _checked(name, kinds[name], value) for name, value in changes.items()}


def _checked(name: str, kind: Any, value: Any) -> Any:
    if get_origin(kind) is Literal:
        *names, last = get_args(kind)
        if value not in get_args(kind):
            raise ValueError(f"{name} must be {', '.join(names)} or {last}, got {value!r}.")
        return value
    words = {bool: "True or False", int: "a whole number", float: "a number"}
    if kind not in words:
        raise ValueError(f"{name} cannot be changed by name: it comes from the preset and the learner.")
    fits = isinstance(value, int | float if kind is float else kind)
    if not fits or isinstance(value, bool) != (kind is bool):
        raise ValueError(f"{name} must be {words[kind]}, got {value!r}.")
    return kind(value)
