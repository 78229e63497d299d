"""The configuration of Algorithm 1."""

from dataclasses import dataclass
from typing import Any, Literal

from marco.checks import check_fields
from marco.learners.base import Learner
from marco.model.config import ModelConfig
from marco.model.environment import ResampleMember
from marco.model.uncertainty import BonusName
from marco.model.views import ViewName
from marco.types import Spec

Collector = Literal["explorer", "team", "random"]
PresetName = Literal["default", "paper"]

LEAST_EPISODES = 2
"""A first model needs one episode to learn from and one to be judged by."""


@dataclass(frozen=True)
class MarcoConfig:
    """The letters of Algorithm 1, and how long each of its lines goes on."""

    samples: int
    """The budget: real steps per seed. Not one more is taken."""
    first_chunk: int
    """Samples of the first chunk, collected at random."""
    chunk: int
    """Samples of each later chunk."""
    team: Learner
    """Trains the team's policy inside the model."""
    explorer: Learner
    """Trains the exploration policy inside the model."""
    model: ModelConfig
    """The networks of the model, and how they are trained."""
    view: ViewName = "centralised"
    """What the model takes for the state: the central state, all observations, or each agent's own."""
    memory: int = 0
    """Of how many timesteps the state of the model consists, where the environment's own is only the joint
    observation: 1, that of now. 0: chosen by how well held-out episodes are predicted."""
    resample_member: ResampleMember = "step"
    """How often an imagined episode draws the ensemble member that generates it."""
    collector: Collector = "explorer"
    """Who collects the later chunks: the exploration policy or, as an ablation, another."""
    team_share: float = 0.0
    """The share of each later chunk that the team so far collects in its stead, at most: the planned one,
    where there is one that is proved the best; else that of the refits, as long as it earns more."""
    epsilon: float = 0.1
    """The probability of a random action while collecting."""
    lam: float = 2.0
    """lambda: the weight of the ensemble's disagreement in the exploration reward."""
    bonus: BonusName = "variance"
    """How disagreement is measured."""
    novelty: bool = False
    """Whether r-tilde also has how new a step is by the count of real ones, whatever the ensemble thinks of
    it; where states come back."""
    explorer_steps: int = 100_000
    """Model steps that train the exploration policy after every refit."""
    warm_explorer: bool = True
    """Whether the exploration policy goes on from its weights before the refit."""
    team_steps: int = 0
    """Model steps that train the team after every refit but the last."""
    final_updates: int = 3_000
    """Updates of each team in the last model."""
    demonstrations: float = 0.0
    """The share of imagined episodes that begin with the actions of a real one. It falls to 0 by half of each
    training."""
    candidates: tuple[Learner, ...] = ()
    """The learners of the teams that are trained from scratch in the last model, of which one is chosen.
    Empty: the team that was trained after every refit is trained on."""
    offline: tuple[Learner, ...] = ()
    """Learners of teams that are trained without the model, on the real episodes alone: candidates, too."""
    offline_updates: int = 1_000
    """Updates of each of these."""
    trial_samples: int = 0
    """How many samples of the budget are kept for a trial at the end, in which the candidates play for real.
    0: one is chosen by what the model says."""
    until_gain_below: float = 0.0
    """End the run before its budget is spent, once two chunks in a row have raised the team's return in the
    model by less than this per thousand real samples. 0: spend the budget."""
    planning: int = 0
    """How long the exact planner searches for a team in the last model, where the states met were few: how
    often it looks at its clock. Before each later chunk it searches for a tenth of that; a team which is then
    proved to be the best collects half of the chunk. 0: it takes no part."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}.")
        if not 1 <= self.first_chunk <= self.samples:
            raise ValueError(
                f"first_chunk={self.first_chunk} must be from 1 to the budget of {self.samples} samples."
            )
        for name in ("chunk", "final_updates", "offline_updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        not_negative = (
            "explorer_steps",
            "team_steps",
            "lam",
            "planning",
            "trial_samples",
            "until_gain_below",
        )
        for name in (*not_negative, "memory"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}.")
        for name in ("epsilon", "demonstrations", "team_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}.")
        if self.collector == "team" and self.team_steps == 0:
            raise ValueError("collector='team' needs a team that is trained on the way: give team_steps.")

    @property
    def schedule(self) -> tuple[int, ...]:
        """The number of samples at each fit of the model; what is left then is for the trial."""
        last = max(self.first_chunk, self.samples - self.trial_samples)
        return (*range(self.first_chunk, last, self.chunk), last)

    @property
    def final_learners(self) -> tuple[Learner, ...]:
        """The learners of the teams in the last model."""
        return self.candidates or (self.team,)

    @property
    def scales_bonus(self) -> bool:
        """Whether R in Equation 1 is scaled: as the exploration policy sees rewards."""
        return getattr(self.explorer, "units", "raw") == "scaled"

    @classmethod
    def preset(cls, name: PresetName, spec: Spec, **changes: Any) -> "MarcoConfig":
        """The configuration of a preset for an environment, with changes by name.

        `changes` are fields of the config, or of its parts with dots in the name, as in
        `**{"team.learning_rate": 5e-4}`. What a preset derives follows them: the chunks from `samples`, the
        candidates from `team`. `learner` ("iql", "vdn", "qmix", "mappo") chooses the team's learner by name.
        """
        from marco.algorithm.presets import make_config

        return make_config(name, spec, changes)
