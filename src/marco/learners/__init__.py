"""Learners: IQL, VDN, QMIX and MAPPO, the training loop they share, and the best of several teams."""

from marco.learners.base import Learner, LearnerState, Metrics
from marco.learners.mappo import MAPPO
from marco.learners.optimiser import make_optimiser
from marco.learners.presets import LearnerName, LearnerPreset, make_learner
from marco.learners.q_learning import QLearner
from marco.learners.restarts import train_best
from marco.learners.training import TrainingState, init, train, train_in_host, train_until

__all__ = [
    "MAPPO",
    "Learner",
    "LearnerName",
    "LearnerPreset",
    "LearnerState",
    "Metrics",
    "QLearner",
    "TrainingState",
    "init",
    "make_learner",
    "make_optimiser",
    "train",
    "train_best",
    "train_in_host",
    "train_until",
]
