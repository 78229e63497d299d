"""The two presets: `paper`, number by number, and `default`, which reaches more in less time."""

from dataclasses import dataclass
from typing import Literal, get_args

from marco.learners.learner import Learner
from marco.learners.mappo import MAPPO
from marco.learners.mixers import MixerName
from marco.learners.q_learning import QLearner
from marco.types import Continuous, Spec

LearnerName = Literal["iql", "vdn", "qmix", "mappo"]
Preset = Literal["default", "paper"]

PAPER_LEARNER: dict[str, MixerName] = {"switch": "iql", "bridge": "vdn", "reference": "qmix"}
"""The learner that the paper found best for each of its tasks; VDN elsewhere."""


@dataclass(frozen=True)
class Recipe:
    """How to train a team where samples are free: with what, how long, and the best of how many."""

    learner: Learner
    updates: int
    restarts: int


def make_recipe(preset: Preset, spec: Spec, name: LearnerName | None = None) -> Recipe:
    """The recipe of a preset for a world; with the preset's own learner, if no name is given."""
    if preset not in get_args(Preset):
        raise ValueError(f"unknown preset {preset!r}: there are {', '.join(get_args(Preset))}.")
    if name is not None and name not in get_args(LearnerName):
        raise ValueError(f"unknown learner {name!r}: there are {', '.join(get_args(LearnerName))}.")
    return _paper(spec, name) if preset == "paper" else _default(spec, name)


def _paper(spec: Spec, name: LearnerName | None) -> Recipe:
    if name == "mappo":
        raise ValueError("the paper gives no numbers for mappo: use --preset default, or iql, vdn or qmix.")
    return Recipe(QLearner(name or PAPER_LEARNER.get(spec.name, "vdn")), updates=50_000, restarts=1)


def _default(spec: Spec, name: LearnerName | None) -> Recipe:
    """Many episodes side by side, long returns, Adam: see benchmarks/README.md for what was compared.

    Policy gradients solve `reference` fifteen times as fast as Q-learning, and get stuck in the riddle:
    so MAPPO is taken where the state has continuous features, and QMIX where all is discrete.
    """
    continuous = any(isinstance(feature, Continuous) for feature in spec.state)
    name = name or ("mappo" if continuous else "qmix")
    if name == "mappo":
        learner = MAPPO(hidden=128, learning_rate=2e-3, episodes_per_update=128)
        return Recipe(learner, updates=3_000, restarts=1)
    learner_q = QLearner(
        name,
        factored=True,
        trace=0.8,
        optimiser="adam",
        learning_rate=1e-3,
        epsilon_samples=500_000,
        episodes_per_update=256,
        replay=2_048,
        batch=512,
        target_every=50,
    )
    return Recipe(learner_q, updates=3_000, restarts=4)
