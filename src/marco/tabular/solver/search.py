"""The exact solver: depth-first branch and bound over occupancy states (GMAA*-ICE in depth-first form)."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from marco.tabular.policies import AgentPolicy, Team, idle_team, value
from marco.tabular.problem import Dynamics
from marco.tabular.solver.best_response import TooManyBeliefsError, jesp
from marco.tabular.solver.bounds import EPSILON, Stages, prepare
from marco.tabular.solver.occupancy import (
    Histories,
    Moved,
    allowed_actions,
    beginning,
    key,
    revealed,
)
from marco.tabular.solver.options import Options, lone_choices_of
from marco.tabular.solver.rules import Game, Rule

SLACK = 1e-9
"""Values that differ by less are equal."""


class Solution(NamedTuple):
    """What is known of the optimum: it lies in [lower, upper], and the team earns lower."""

    lower: float
    upper: float
    team: Team
    seconds: float
    nodes: int
    """Occupancy states that were expanded."""

    @property
    def optimal(self) -> bool:
        """Whether the team is the best there is."""
        return self.upper - self.lower <= 1e-7


@dataclass
class _Node:
    """What is known of an occupancy state at a step."""

    lower: float
    upper: float
    rule: Rule | None = None
    moved: Moved | None = None
    child: "_Node | None" = None


Report = Callable[[float, float, float], object]
"""Called with lower, upper and the seconds since the start while a search runs."""


def solve(
    dynamics: Dynamics,
    horizon: int,
    *,
    seconds: float = float("inf"),
    team: Team | None = None,
    ceiling: float = float("inf"),
    report: Report | None = None,
    seed: int = 0,
    interruptible: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Solution:
    """The best decentralised team over a horizon, or bounds when the time is up.

    `team` is one to start from: the better it is, the more can be cut off. `ceiling` is an upper bound that
    is known already: a team that reaches it is the best. A search that takes more than a second (or a third
    of `seconds`) takes turns with alternating best responses, whose starts are drawn with `seed`. If it is
    `interruptible`, Ctrl-C ends the search as the time does, and not the program. Seconds are those of the
    wall, unless the `clock` is another one, such as `time.thread_time`.
    """
    if not seconds > 0.0:
        raise ValueError(f"the time must be more than 0 seconds, got {seconds}.")
    began = clock()
    stages = prepare(dynamics, horizon)
    search = Search(stages, report, elapsed=lambda: clock() - began)
    team = idle_team(stages.observations, stages.horizon) if team is None else team
    lower, turn, rng = value(dynamics, team), min(1.0, seconds / 3), np.random.default_rng(seed)
    deep = sys.getrecursionlimit()
    sys.setrecursionlimit(max(deep, 1000 + 20 * horizon))
    try:
        while True:
            search.run(lower, ceiling, min(seconds, search.elapsed() + turn))
            lower, team = _better(dynamics, search, lower, team)
            if not search.stopped or search.elapsed() >= seconds:
                break
            found = _responses(rng, search, min(seconds, search.elapsed() + turn / 2))
            lower, team = max((lower, team), found, key=itemgetter(0))
            turn *= 2
    except KeyboardInterrupt:
        if not interruptible:
            raise
        lower, team = _better(dynamics, search, lower, team)
    finally:
        sys.setrecursionlimit(deep)
    # What is left at the root is bounded by the rule that was tried last: rules come best first.
    upper = max(lower, stages.constant + min(search.root.upper, search.bounds[1]))
    return Solution(lower, upper, team, search.elapsed(), search.expanded)


def _better(dynamics: Dynamics, search: "Search", lower: float, team: Team) -> tuple[float, Team]:
    """The team at the root of the search, if it is better than what there was."""
    if search.root.rule is None or search.root.lower <= lower - search.stages.constant:
        return lower, team
    found = _team(search.stages, search.root)
    return value(dynamics, found), found


def _responses(rng: np.random.Generator, search: "Search", until: float) -> tuple[float, Team]:
    """The best team that alternating best responses find until so many seconds after the start."""
    stages, enough = search.stages, search.root.upper + search.stages.constant
    try:
        return jesp(rng, stages, 1_000_000, late=lambda: search.elapsed() > until, enough=enough)
    except TooManyBeliefsError:
        return -np.inf, idle_team(stages.observations, stages.horizon)


@dataclass
class Search:
    """A search under way: what has been found for every occupancy state met, and how long it may go on."""

    stages: Stages
    report: Report | None
    elapsed: Callable[[], float]
    """The seconds since the start."""
    found: dict[tuple[int, bytes], _Node] = field(default_factory=dict)
    expanded: int = 0
    until: float = np.inf
    stopped: bool = False
    told: float = 0.0
    bounds: tuple[float, float] = (-np.inf, np.inf)
    root: _Node = field(default_factory=lambda: _Node(-np.inf, np.inf))

    def run(self, lower: float, ceiling: float, until: float) -> None:
        """Search for something better than `lower`, until so many seconds after the start."""
        self.until, self.stopped = until, False
        start, floor = beginning(self.stages), lower - self.stages.constant
        top = min(float(start.belief[0] @ self.stages.mdp[0]), ceiling - self.stages.constant)
        self.root.upper = min(self.root.upper, top)
        self.bounds = floor, self.root.upper
        self.found[0, key(start)] = self.root
        self.visit(start, 0, floor)
        self.bounds = self.bounds[0], self.root.upper

    def visit(self, histories: Histories, t: int, floor: float) -> _Node:
        """Find the best continuation, if there is one worth more than `floor`."""
        place = t, key(histories)
        node = self.found.get(place)
        if node is None:
            node = self.found[place] = _Node(-np.inf, float((histories.belief @ self.stages.mdp[t]).sum()))
            node.lower = -np.inf if len(histories.belief) else 0.0
        if node.upper <= max(floor, node.lower) + SLACK or self.time_is_up():
            return node
        self.expanded += 1
        if t + 1 == self.stages.horizon:
            self._finish(histories, node, floor)
        else:
            self._expand(histories, t, node, floor)
        return node

    def _finish(self, histories: Histories, node: _Node, floor: float) -> None:
        """At the last step worths are exact, and the first rule is the best."""
        worth = (histories.belief @ self.stages.R[-1]).reshape(-1, *self.stages.actions)
        allowed = allowed_actions(self.stages, histories)
        game = Game(histories, worth, allowed, lone_choices_of(self.stages, histories, allowed))
        best = max(floor, node.lower)
        rule = next(game.rules(lambda: best + SLACK, stop=self.time_is_up), None)
        if rule is None and self.stopped:
            return
        if rule is not None:
            node.lower, node.rule, best = rule.bound, rule, rule.bound
        node.upper = min(node.upper, best)

    def _expand(self, histories: Histories, t: int, node: _Node, floor: float) -> None:
        """Try the rules in the order of their bounds, as long as one can be better than what is there."""
        options = Options(self.stages, histories, t, self.revealed, self.time_is_up)
        best = [max(floor, node.lower)]
        reached = best[0]
        for rule in options.rules(lambda: best[0] + SLACK):
            options.tried += 1
            reward, moved = options.follow(rule)
            if t == 0:
                self.bounds = best[0], min(rule.bound, node.upper)
            child = self.visit(moved.histories, t + 1, best[0] - reward)
            reached = max(reached, min(rule.bound, reward + child.upper))
            if reward + child.lower > node.lower:
                node.lower, node.rule, node.moved, node.child = reward + child.lower, rule, moved, child
                best[0] = max(best[0], node.lower)
            if best[0] >= node.upper - SLACK:
                return
        node.upper = min(node.upper, max(best[0], reached, options.left))

    def revealed(self, outcomes: Float[np.ndarray, " M"], t: int) -> float:
        """What can be earned from step t on if all share what they saw until then, and nothing later."""
        stages, total = self.stages, 0.0
        for begin, end in pairwise(stages.groups):
            mass = float(outcomes[begin:end].sum())
            if mass > EPSILON:
                belief = np.zeros(stages.d0.size)
                belief[stages.following[begin:end]] = outcomes[begin:end] / mass
                total += mass * self.visit(revealed(len(stages.actions), belief), t, -np.inf).upper
        return total

    def time_is_up(self) -> bool:
        """Whether to stop; tells how things stand now and then."""
        elapsed = self.elapsed()
        if self.report is not None and elapsed - self.told >= 1.0:
            self.told = elapsed
            lower, upper = self.bounds
            self.report(lower + self.stages.constant, upper + self.stages.constant, elapsed)
        if elapsed > self.until:
            self.stopped = True
        return self.stopped


def _team(stages: Stages, root: _Node) -> Team:
    """The machines that the best rules on the way make; what cannot happen leads nowhere."""
    actions: list[list[np.ndarray]] = [[] for _ in stages.actions]
    successors: list[list[np.ndarray]] = [[] for _ in stages.actions]
    node: _Node | None = root
    for _ in range(stages.horizon):
        for i, seen in enumerate(stages.observations):
            rule = node.rule.each[i] if node is not None and node.rule is not None else np.zeros(0, int)
            rule = rule if rule.size else np.zeros(1, int)
            actions[i].append(rule)
            moved = node.moved if node is not None else None
            nowhere = np.full((len(rule), seen), -1)
            successors[i].append(nowhere if moved is None else moved.successors[i])
        node = node.child if node is not None else None
    return tuple(
        AgentPolicy(tuple(does), tuple(leads[:-1])) for does, leads in zip(actions, successors, strict=True)
    )
