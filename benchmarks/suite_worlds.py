"""The worlds of the suite: each is one entry, with its budget B, which was fixed before anything was run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from marco.environments.base import Environment, HostWorld
from marco.environments.registry import make, problem
from marco.learners.base import Learner
from marco.learners.mappo import MAPPO
from marco.learners.presets import LearnerName, make_learner
from marco.learners.q_learning import QLearner
from marco.optional import require
from marco.tabular import solve
from marco.types import Spec

TABLES, RIDDLES, PLANES, BATTLES = 1_000, 3_000, 10_000, 50_000
"""Real samples: B of the tables and `switch`; of `bridge` and `delayed`; of foraging and MPE; of SMAX and
Overcooked."""


@dataclass(frozen=True)
class World:
    """An environment of the suite."""

    name: str
    budget: int
    """B, in real samples."""
    make: Callable[[], Environment | HostWorld]
    ceiling: Callable[[], float] | None = None
    """The best value, or a bound on it that a team is known to reach; None: what free samples give."""
    hundredfold: bool = True
    """Whether model-free learners get 100 B, too: not where that takes hours."""


def _named(name: str, budget: int, ceiling: Callable[[], float] | None = None, **settings: Any) -> World:
    """By a name that `make` knows."""
    return World(name, budget, partial(make, name, **settings), ceiling)


def _table(name: str, horizon: int) -> World:
    """A finite Dec-POMDP: its optimum is known from the exact solver."""
    return _named(name, TABLES, partial(_optimum, name, horizon), horizon=horizon)


def _riddle(name: str, budget: int) -> World:
    return _named(name, budget, lambda: make(name).optimum)


def _particles(name: str) -> World:
    return World(name.removeprefix("MPE_"), PLANES, partial(make, f"jaxmarl:{name}"))


def _smax(scenario: str) -> World:
    def made() -> Environment | HostWorld:
        smax = require("jaxmarl.environments.smax", "jaxmarl")
        return make("jaxmarl:HeuristicEnemySMAX", scenario=smax.map_name_to_scenario(scenario))

    return World(f"SMAX {scenario}", BATTLES, made, hundredfold=False)


def _overcooked(layout: str, steps: int) -> World:
    def made() -> Environment | HostWorld:
        overcooked = require("jaxmarl.environments.overcooked", "jaxmarl")
        return make("jaxmarl:overcooked", layout=overcooked.overcooked_layouts[layout], max_steps=steps)

    return World(f"overcooked {layout}", BATTLES, made, hundredfold=False)


def _optimum(name: str, horizon: int) -> float:
    table = problem(name)
    return float(solve(table.dynamics, table.steps(horizon)).lower)


WORLDS = (
    _riddle("switch", TABLES),
    _table("dectiger", 4),
    _table("recycling", 6),
    _table("gridsmall", 5),
    _table("broadcast-channel", 10),
    _riddle("delayed", RIDDLES),
    _riddle("bridge", RIDDLES),
    # All foods together are worth 1, and a hand-written team has 0.9998.
    _named("foraging", PLANES, lambda: 1.0, rows=8, columns=8, agents=2, foods=2, force_coop=True),
    _named("reference", PLANES),
    _particles("MPE_simple_reference_v3"),
    _particles("MPE_simple_spread_v3"),
    _particles("MPE_simple_speaker_listener_v4"),
    _smax("3m"),
    _smax("2s3z"),
    _overcooked("cramped_room", 100),
)


def tuned(name: LearnerName, spec: Spec, samples: int) -> Learner:
    """A model-free learner for a budget: its schedules fit the budget, and it learns more from each episode.

    One rule for every world, the best of nine on `gridsmall` and `switch` together (1,000 samples, seeds 0 to
    4): VDN with four gradient steps per episode has 2.34 and 0.41 there, with one 1.60 and 0.44; MAPPO with
    batches of 8 episodes 1.97 and 0.17, with 32 it has 1.37 and 0.10.
    """
    learner = make_learner("sample-efficient", spec, name)
    episodes = max(1, samples // spec.horizon)
    if isinstance(learner, MAPPO):
        batch = max(8, min(32, episodes // 40))
        return replace(learner, episodes_per_update=batch)
    assert isinstance(learner, QLearner)
    return replace(
        learner,
        factored=True,
        epsilon_anneal_steps=max(1, samples // 2),
        gradient_steps=4,
        batch_size=min(32, max(4, episodes // 8)),
        target_update_interval=max(1, min(50, episodes // 20)),
    )
