"""MARCO: learn a team's policy from few real interactions."""

from marco.environments.adapters.jaxmarl import JaxMARLWorld
from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.environments.base import (
    Environment,
    EnvironmentState,
    FiniteEnvironment,
    HostWorld,
    Transition,
    WorldError,
)
from marco.environments.bridge import Bridge
from marco.environments.delayed import Delayed
from marco.environments.reference import Reference
from marco.environments.registry import WORLDS, make, optimum
from marco.environments.switch import Switch
from marco.environments.tabular import Tabular, from_tables
from marco.evaluation import exact_value, sampled_value
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.learners.training import TrainingState, begin, train, train_best
from marco.policies.base import EpsilonGreedy, Policy, RandomPolicy
from marco.policies.deploy import AgentPolicy, TeamPolicy, load
from marco.rollout import play, rollout, rollouts
from marco.types import ActionComponent, Agent, Categorical, Continuous, Episode, Spec, TimeStep, binary

__all__ = [
    "MAPPO",
    "WORLDS",
    "ActionComponent",
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
