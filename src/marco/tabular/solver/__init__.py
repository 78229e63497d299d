"""The exact Dec-POMDP solver, and bounds that are quicker to compute.

`solve` finds the best decentralised team (branch and bound over occupancy states). `jesp` finds good teams
quickly (alternating best responses). `mdp_bound` and `pomdp_bound` are upper bounds.
"""

from marco.tabular.solver.best_response import best_response, jesp
from marco.tabular.solver.bounds import mdp_bound, pomdp_bound, prepare
from marco.tabular.solver.limits import Limits
from marco.tabular.solver.search import Solution, solve

__all__ = ["Limits", "Solution", "best_response", "jesp", "mdp_bound", "pomdp_bound", "prepare", "solve"]
