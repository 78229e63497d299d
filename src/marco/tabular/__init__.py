"""Finite Dec-POMDPs as tables: problems and files, the exact solver, Adapted R-MAX (`marco.tabular.rmax`).

    from marco.tabular import load, solve

    tiger = load("dectiger")                    # or a .dpomdp file
    found = solve(tiger.dynamics, horizon=3)
    found.lower, found.optimal, found.team      # the value, whether it is proved, a controller per agent
    env = tiger.environment(horizon=3)          # an environment for every learner

`problem` and `library` hold the problems, `policies` the teams, `convert` makes tables of environments;
`dpomdp` is the file format, `solver` the planner, `rmax` the learners.
"""

from marco.tabular.convert import from_environment
from marco.tabular.dpomdp import FormatError, read, write
from marco.tabular.library import load
from marco.tabular.policies import FiniteStateController, Team, brute_force, show, value
from marco.tabular.problem import DecPOMDP, Dynamics
from marco.tabular.solver import Limits, Solution, mdp_bound, pomdp_bound, solve

__all__ = [
    "DecPOMDP",
    "Dynamics",
    "FiniteStateController",
    "FormatError",
    "Limits",
    "Solution",
    "Team",
    "brute_force",
    "from_environment",
    "load",
    "mdp_bound",
    "pomdp_bound",
    "read",
    "show",
    "solve",
    "value",
    "write",
]
