"""Learners for every purpose: `paper`, number by number; `sample-efficient`; and `free-samples`."""

from typing import Literal, get_args

from marco.learners.base import Learner
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.types import Spec

LearnerName = Literal["iql", "vdn", "qmix", "mappo"]
LearnerPreset = Literal["sample-efficient", "paper", "free-samples"]

PAPER_LEARNER: dict[str, LearnerName] = {"switch": "iql", "bridge": "vdn", "reference": "qmix"}
"""The learner that the paper found best for each of its tasks; VDN elsewhere."""


def make_learner(preset: LearnerPreset, spec: Spec, name: LearnerName | None = None) -> Learner:
    """The learner of a preset for an environment; the preset chooses its kind, unless a name is given."""
    if preset not in get_args(LearnerPreset):
        raise ValueError(f"unknown preset {preset!r}: there are {', '.join(get_args(LearnerPreset))}.")
    if name is not None and name not in get_args(LearnerName):
        raise ValueError(f"unknown learner {name!r}: there are {', '.join(get_args(LearnerName))}.")
    match preset:
        case "paper":
            return _paper(name or PAPER_LEARNER.get(spec.name, "vdn"))
        case "sample-efficient":
            return _sample_efficient(name or _own_choice(spec, discrete=PAPER_LEARNER.get(spec.name, "vdn")))
        case "free-samples":
            return _free_samples(name or _own_choice(spec, discrete="qmix"))


def _own_choice(spec: Spec, discrete: LearnerName) -> LearnerName:
    """Policy gradients solve `reference` many times as fast as Q-learning, and get stuck in the riddle."""
    return "mappo" if spec.state_has_numbers else discrete


def _paper(name: LearnerName) -> Learner:
    if name == "mappo":
        raise ValueError("the paper gives no numbers for mappo: use another preset, or iql, vdn or qmix.")
    return QLearner(name)


def _sample_efficient(name: LearnerName) -> Learner:
    """The strongest model-free baselines we found: an update per episode, with PyMARL's constants."""
    if name == "mappo":
        return MAPPO(hidden=128, learning_rate=2e-3, episodes_per_update=32)
    return QLearner(name, learning_rate=5e-4, epsilon_anneal_steps=50_000, units="scaled")


def _free_samples(name: LearnerName) -> Learner:
    """Many episodes side by side, long returns, Adam: for environments in JAX whose steps cost nothing."""
    if name == "mappo":
        return MAPPO(hidden=128, learning_rate=2e-3, episodes_per_update=128, epochs=2, minibatches=4)
    return QLearner(
        name,
        factored=True,
        td_lambda=0.8,
        optimiser="adam",
        learning_rate=1e-3,
        epsilon_anneal_steps=500_000,
        episodes_per_update=256,
        buffer_size=2_048,
        batch_size=512,
        target_update_interval=50,
        units="scaled",
    )
