"""Adapted R-MAX (the paper's Algorithm 2), the exploration methods it is compared with, and its theorem.

problem = load("recycling")
optimum = solve(problem.dynamics, problem.steps(3)).lower
run = learn(np.random.default_rng(0), make_task(problem), problem.steps(3), RMax(m=10), 2_000, optimum)
run.regret, run.samples
"""

from marco.tabular.rmax.comparators import (
    Centralised,
    EpsilonGreedyExploration,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
)
from marco.tabular.rmax.known_model import Counts, Task, Unknown, known_model, make_task
from marco.tabular.rmax.loop import LearningRun, PlanPhase, learn
from marco.tabular.rmax.methods import Method, Plan
from marco.tabular.rmax.plots import draw_runs
from marco.tabular.rmax.rmax import RMax
from marco.tabular.rmax.statistics import clopper_pearson, summary
from marco.tabular.rmax.theorem import Guarantee, printed, repaired, verdict

__all__ = [
    "Centralised",
    "Counts",
    "EpsilonGreedyExploration",
    "ExplorationBonus",
    "Guarantee",
    "LearningRun",
    "Method",
    "Plan",
    "PlanPhase",
    "PosteriorSampling",
    "RMax",
    "RandomExploration",
    "Task",
    "Unknown",
    "clopper_pearson",
    "draw_runs",
    "known_model",
    "learn",
    "make_task",
    "printed",
    "repaired",
    "summary",
    "verdict",
]
