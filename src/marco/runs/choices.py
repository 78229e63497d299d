"""From the choices of `marco train`, or of a sweep, to all settings of a run's algorithm."""

from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, Literal

from marco.algorithm.config import MarcoConfig, PresetName
from marco.algorithm.model_free import ModelFreeConfig
from marco.algorithm.presets import apply_changes
from marco.environments.base import Environment, HostWorld
from marco.learners.presets import LearnerName, LearnerPreset, make_learner
from marco.runs.config import Method

MOST_RESTARTS = 1_000
"""The most teams in the last model: each takes memory of its own, and time."""

RunPreset = Literal["default", "paper", "free-samples"]


@dataclass(frozen=True)
class Choices:
    """What is chosen by a word or a number; None where the preset chooses."""

    method: Method = "marco"
    preset: RunPreset | None = None
    learner: LearnerName | None = None
    samples: int | None = None
    restarts: int | None = None
    evaluate_every: int | None = None

    def default(self, env: Environment | HostWorld) -> MarcoConfig | ModelFreeConfig:
        """The settings without any changes."""
        if self.method == "model-free":
            return self._model_free(env)
        return MarcoConfig.preset(self._preset, env.spec, samples=self.samples, learner=self.learner)

    def algorithm(
        self, env: Environment | HostWorld, changes: dict[str, Any]
    ) -> MarcoConfig | ModelFreeConfig:
        """The settings with changes by (dotted) name."""
        if self.method == "model-free":
            return apply_changes(self._model_free(env), changes)
        given: dict[str, Any] = {"samples": self.samples, "learner": self.learner}
        return self.restarted(MarcoConfig.preset(self._preset, env.spec, **given, **changes))

    def restarted(self, config: MarcoConfig) -> MarcoConfig:
        """With so many teams in the last model, the preset's own repeated."""
        if self.restarts is None:
            return config
        if self.restarts > MOST_RESTARTS:
            raise ValueError(f"--restarts must be at most {MOST_RESTARTS:,}, got {self.restarts}.")
        learners = config.final_learners
        team = config.team if self.restarts else learners[0]  # that of the refits is the last one, too
        return replace(config, team=team, candidates=tuple(islice(cycle(learners), self.restarts)))

    @property
    def _preset(self) -> PresetName:
        return "paper" if self.preset == "paper" else "default"

    def _model_free(self, env: Environment | HostWorld) -> ModelFreeConfig:
        preset: LearnerPreset = "sample-efficient"
        if self.preset in ("paper", "free-samples"):
            preset = self.preset
        samples = 100_000 if self.samples is None else self.samples
        # In a host environment test episodes are real steps, taken one by one: few will do.
        share = 20 if isinstance(env, Environment) else 5
        every = max(1, samples // share) if self.evaluate_every is None else self.evaluate_every
        return ModelFreeConfig(make_learner(preset, env.spec, self.learner), samples, every)
