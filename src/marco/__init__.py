"""MARCO: learn a team's policy from few real interactions."""

from marco.environments.bridge import Bridge
from marco.environments.delayed import Delayed
from marco.environments.environment import (
    Environment,
    EnvironmentState,
    FiniteEnvironment,
    HostWorld,
    Transition,
    WorldError,
)
from marco.environments.jaxmarl import JaxMARLWorld
from marco.environments.pettingzoo import PettingZooWorld
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.environments.tabular import Tabular, from_tables
from marco.environments.worlds import WORLDS, make, optimum
from marco.evaluation import exact_value, sampled_value
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.policy import AgentPolicy, TeamPolicy, load
from marco.rollout import EpsilonGreedy, Policy, RandomPolicy, play, rollout, rollouts
from marco.training import TrainingState, begin, train, train_best
from marco.types import Agent, Categorical, Continuous, Episode, Factor, Spec, TimeStep, binary

__all__ = [
    "MAPPO",
    "WORLDS",
    "Agent",
    "AgentPolicy",
    "Bridge",
    "Categorical",
    "Continuous",
    "Delayed",
    "Environment",
    "EnvironmentState",
    "Episode",
    "EpsilonGreedy",
    "Factor",
    "FiniteEnvironment",
    "HostWorld",
    "JaxMARLWorld",
    "PettingZooWorld",
    "Policy",
    "QLearner",
    "RandomPolicy",
    "Reference",
    "Spec",
    "Switch",
    "Tabular",
    "TeamPolicy",
    "TimeStep",
    "TrainingState",
    "Transition",
    "WorldError",
    "begin",
    "binary",
    "exact_value",
    "from_tables",
    "load",
    "make",
    "optimum",
    "play",
    "rollout",
    "rollouts",
    "sampled_value",
    "train",
    "train_best",
]
