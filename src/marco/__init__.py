"""MARCO: learn a team's policy from few real interactions.

    env = marco.make("switch")
    result = marco.learn(env, samples=2_000)
    result.team.save("team.npz")

Names are loaded when they are first used: `import marco` alone starts neither JAX nor anything else.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

try:
    __version__ = version("marco-marl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "unknown"

if TYPE_CHECKING:
    from marco.algorithm.config import MarcoConfig
    from marco.api import Result, learn, learn_seeds
    from marco.environments.base import Environment, FiniteEnvironment, HostWorld, WorldError
    from marco.environments.registry import make
    from marco.evaluation import Estimate, evaluate
    from marco.learners.base import Learner
    from marco.learners.mappo import MAPPO
    from marco.learners.q_learning import QLearner
    from marco.policies.base import Policy, RandomPolicy
    from marco.policies.deploy import TeamPolicy, load
    from marco.rollout import play, rollouts
    from marco.types import Agent, Episode, Spec, TimeStep

_HOMES = {
    "Agent": "marco.types",
    "Environment": "marco.environments.base",
    "Episode": "marco.types",
    "Estimate": "marco.evaluation",
    "FiniteEnvironment": "marco.environments.base",
    "HostWorld": "marco.environments.base",
    "Learner": "marco.learners.base",
    "MAPPO": "marco.learners.mappo",
    "MarcoConfig": "marco.algorithm.config",
    "Policy": "marco.policies.base",
    "QLearner": "marco.learners.q_learning",
    "RandomPolicy": "marco.policies.base",
    "Result": "marco.api",
    "Spec": "marco.types",
    "TeamPolicy": "marco.policies.deploy",
    "TimeStep": "marco.types",
    "WorldError": "marco.environments.base",
    "evaluate": "marco.evaluation",
    "learn": "marco.api",
    "learn_seeds": "marco.api",
    "load": "marco.policies.deploy",
    "make": "marco.environments.registry",
    "play": "marco.rollout",
    "rollouts": "marco.rollout",
}

_ROOMS = ("environments", "learners", "model", "simulators", "tabular")
"""Packages with more names, loaded in the same way."""

__all__ = [
    "MAPPO",
    "Agent",
    "Environment",
    "Episode",
    "Estimate",
    "FiniteEnvironment",
    "HostWorld",
    "Learner",
    "MarcoConfig",
    "Policy",
    "QLearner",
    "RandomPolicy",
    "Result",
    "Spec",
    "TeamPolicy",
    "TimeStep",
    "WorldError",
    "__version__",
    "evaluate",
    "learn",
    "learn_seeds",
    "load",
    "make",
    "play",
    "rollouts",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"marco.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'marco' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
