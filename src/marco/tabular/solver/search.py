"""The exact solver: depth-first branch and bound over occupancy states (GMAA*-ICE in depth-first form)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from marco.tabular.policies import FiniteStateController, Team, idle_team, value
from marco.tabular.problem import Dynamics
from marco.tabular.solver.best_response import TooManyBeliefsError, jesp
from marco.tabular.solver.bounds import EPSILON, Stages, check, prepare
from marco.tabular.solver.limits import NUMBERS, Limits, OutOfTimeError, process_bytes, recursion_limit
from marco.tabular.solver.occupancy import (
    Moved,
    OccupancyState,
    allowed_actions,
    initial,
    key,
    revealed,
)
from marco.tabular.solver.options import Options, lone_choices_of
from marco.tabular.solver.rules import BayesianGame, Rule
from marco.tabular.solver.short_teams import short_teams

SLACK = 1e-9
"""Values that differ by less are equal."""
PAIRS = 5_000_000
"""The most pairs of a joint history and a history of an occupancy state that is expanded."""


class Solution(NamedTuple):
    """Bounds on the value of the best team, and a team whose value is the lower bound."""

    lower: float
    upper: float
    team: Team
    seconds: float
    nodes: int
    """The number of occupancy states that were expanded."""
    mdp: float
    """The value of a team that observes the state; infinite if the time was too short to compute it."""
    full: bool = False
    """Whether the search was ended by its memory."""

    @property
    def optimal(self) -> bool:
        """Whether the team is proved optimal."""
        return self.upper - self.lower <= 1e-7


NO_LIMITS = Limits()

Report = Callable[[float, float, float], object]
"""Called with the lower bound, the upper bound and the seconds since the start while a search runs."""


def solve(
    dynamics: Dynamics,
    horizon: int,
    limits: Limits = NO_LIMITS,
    *,
    team: Team | None = None,
    report: Report | None = None,
) -> Solution:
    """The best decentralised team over a horizon, or bounds where the limits end the search.

    `team` is a team to start from: the better it is, the more can be pruned. A search that takes more than a
    second (or a third of its time) alternates with best responses, which find good teams sooner.
    """
    began, began_with = limits.clock(), process_bytes()

    def elapsed() -> float:
        return limits.clock() - began

    check(dynamics, horizon)
    team = idle_team(dynamics.num_observations, horizon) if team is None else team
    interrupts = (KeyboardInterrupt,) if limits.interruptible else ()
    try:
        stages = prepare(dynamics, horizon, stop=lambda: elapsed() > limits.seconds)
    except (OutOfTimeError, *interrupts):
        most = horizon * float(dynamics.R.max())
        return Solution(value(dynamics, team), most, team, elapsed(), 0, np.inf)
    search = Search(stages, report, elapsed, memory=limits.memory, began_with=began_with)
    search.best = _Best(value(dynamics, team), team)
    with recursion_limit(1000 + 20 * horizon), suppress(*interrupts):
        _alternate(dynamics, search, limits)
    best = _better(dynamics, search)
    # The open rules at the root are bounded by the one tried last, since rules come best first, and by those
    # that lead to occupancy states too large to be expanded.
    upper = max(best.value, stages.constant + min(search.root.upper, search.bounds[1]))
    mdp = stages.constant + float(stages.d0 @ stages.mdp[0])
    return Solution(best.value, upper, best.team, elapsed(), search.expanded, mdp, search.full)


class _Best(NamedTuple):
    """The best team so far."""

    value: float
    team: Team


def _alternate(dynamics: Dynamics, search: "Search", limits: Limits) -> None:
    """Turns of the search and of best responses, each twice as long as the one before."""
    turn, rng = min(1.0, limits.seconds / 3), np.random.default_rng(0)
    while True:
        search.run(search.best.value, limits.ceiling, min(limits.seconds, search.elapsed() + turn))
        search.best = _better(dynamics, search)
        if search.elapsed() >= limits.seconds or not (search.stopped or search.cut):
            return
        found = _responses(rng, dynamics, search, min(limits.seconds, search.elapsed() + turn / 2))
        search.best = max(search.best, found, key=itemgetter(0))
        if search.full or not search.stopped:  # nothing can be searched any more but what is too large
            return
        turn *= 2


def _better(dynamics: Dynamics, search: "Search") -> _Best:
    """The team at the root of the search if it is better than the best so far, else that one."""
    if search.root.rule is None or search.root.lower <= search.best.value - search.stages.constant:
        return search.best
    team = _team(search.stages, search.root)
    return _Best(value(dynamics, team), team)


def _responses(rng: np.random.Generator, dynamics: Dynamics, search: "Search", until: float) -> _Best:
    """The best team that alternating best responses find until `until` seconds after the start.

    Over a long horizon they find poor teams or none. So good teams of a few steps, repeated, come first.
    """

    def stop() -> bool:
        return search.elapsed() > until

    stages, target = search.stages, search.root.upper + search.stages.constant
    short = [_Best(*found) for found in short_teams(rng, dynamics, stages.horizon, stop)]
    best = max([search.best, *short], key=itemgetter(0))
    with suppress(TooManyBeliefsError):
        found = jesp(rng, stages, 1_000_000, team=best.team, stop=stop, target=target)
        best = max(best, _Best(*found), key=itemgetter(0))
    return best


@dataclass
class _Node:
    """What is known of an occupancy state at a step."""

    lower: float
    upper: float
    rule: Rule | None = None
    moved: Moved | None = None
    child: "_Node | None" = None


@dataclass
class Search:
    """A search under way: bounds for every occupancy state visited so far, and when to stop."""

    stages: Stages
    report: Report | None
    elapsed: Callable[[], float]
    """The seconds since the start."""
    memory: float = np.inf
    """The bytes that the process may grow by."""
    best: _Best = field(default_factory=lambda: _Best(-np.inf, ()))
    found: dict[tuple[int, bytes], _Node] = field(default_factory=dict)
    expanded: int = 0
    until: float = np.inf
    stopped: bool = False
    cut: bool = False
    """Whether an occupancy state was too large to be expanded."""
    full: bool = False
    """Whether the memory is used up."""
    began_with: int = field(default_factory=process_bytes)
    looked: float = 0.0
    reported: float = 0.0
    bounds: tuple[float, float] = (-np.inf, np.inf)
    root: _Node = field(default_factory=lambda: _Node(-np.inf, np.inf))

    def run(self, lower: float, ceiling: float, until: float) -> None:
        """Search for a team better than `lower`, until `until` seconds after the start."""
        self.until, self.stopped = until, False
        start, floor = initial(self.stages), lower - self.stages.constant
        top = min(float(start.belief[0] @ self.stages.mdp[0]), ceiling - self.stages.constant)
        self.root.upper = min(self.root.upper, top)
        self.bounds = floor, self.root.upper
        self.found[0, key(start)] = self.root
        self.visit(start, 0, floor)
        self.bounds = self.bounds[0], self.root.upper

    def visit(self, occupancy: OccupancyState, t: int, floor: float) -> _Node:
        """Find the best continuation, if there is one whose value is above `floor`."""
        place = t, key(occupancy)
        node = self.found.get(place)
        if node is None:
            node = self.found[place] = _Node(-np.inf, float((occupancy.belief @ self.stages.mdp[t]).sum()))
            node.lower = -np.inf if len(occupancy.belief) else 0.0
        if node.upper <= max(floor, node.lower) + SLACK or self.time_is_up():
            return node
        if self._too_large(occupancy):
            self.cut = True
            return node
        self.expanded += 1
        if t + 1 == self.stages.horizon:
            self._finish(occupancy, node, floor)
        else:
            self._expand(occupancy, t, node, floor)
        return node

    def _too_large(self, occupancy: OccupancyState) -> bool:
        """Whether to expand an occupancy state would take too much memory, or too long for one step."""
        rows, (_, joint, outcomes) = len(occupancy.histories), self.stages.G.shape
        return rows * joint * outcomes > NUMBERS or rows * max(occupancy.num_histories) > PAIRS

    def _finish(self, occupancy: OccupancyState, node: _Node, floor: float) -> None:
        """At the last step the values are exact, and the first rule is the best."""
        values = (occupancy.belief @ self.stages.R[-1]).reshape(-1, *self.stages.num_actions)
        allowed = allowed_actions(self.stages, occupancy)
        game = BayesianGame(occupancy, values, allowed, lone_choices_of(self.stages, occupancy, allowed))
        best = max(floor, node.lower)
        rule = next(game.rules(lambda: best + SLACK, stop=self.time_is_up), None)
        if rule is None and self.stopped:
            return
        if rule is not None:
            node.lower, node.rule, best = rule.bound, rule, rule.bound
        node.upper = min(node.upper, best)

    def _expand(self, occupancy: OccupancyState, t: int, node: _Node, floor: float) -> None:
        """Try the rules in the order of their bounds, as long as one can improve on the best."""
        options = Options(self.stages, occupancy, t, self.revealed, self.time_is_up)
        best = [max(floor, node.lower)]
        reached = best[0]
        for rule in options.rules(lambda: best[0] + SLACK):
            options.tried += 1
            reward, moved = options.follow(rule)
            if t == 0:
                self.bounds = best[0], min(max(rule.bound, reached), node.upper)
            child = self.visit(moved.occupancy, t + 1, best[0] - reward)
            reached = max(reached, min(rule.bound, reward + child.upper))
            if reward + child.lower > node.lower:
                node.lower, node.rule, node.moved, node.child = reward + child.lower, rule, moved, child
                best[0] = max(best[0], node.lower)
            if best[0] >= node.upper - SLACK:
                return
        node.upper = min(node.upper, max(best[0], reached, options.left))

    def revealed(self, outcomes: Float[np.ndarray, " M"], t: int) -> float:
        """The best value from step t on if all agents share their histories until then, and none later."""
        stages, total = self.stages, 0.0
        for begin, end in pairwise(stages.offsets):
            mass = float(outcomes[begin:end].sum())
            if mass > EPSILON:
                belief = np.zeros(stages.d0.size)
                belief[stages.next_state[begin:end]] = outcomes[begin:end] / mass
                total += mass * self.visit(revealed(len(stages.num_actions), belief), t, -np.inf).upper
        return total

    def time_is_up(self) -> bool:
        """Whether to stop; also reports the bounds once a second and looks at the memory more often."""
        elapsed = self.elapsed()
        if self.report is not None and elapsed - self.reported >= 1.0:
            self.reported = elapsed
            lower, upper = self.bounds
            self.report(lower + self.stages.constant, upper + self.stages.constant, elapsed)
        if elapsed - self.looked >= 0.05:
            self.looked = elapsed
            self.full = self.full or process_bytes() - self.began_with > self.memory
        if elapsed > self.until or self.full:
            self.stopped = True
        return self.stopped


def _team(stages: Stages, root: _Node) -> Team:
    """The controllers of the best rules found; observations that cannot occur have no successor."""
    actions: list[list[np.ndarray]] = [[] for _ in stages.num_actions]
    successors: list[list[np.ndarray]] = [[] for _ in stages.num_actions]
    node: _Node | None = root
    for _ in range(stages.horizon):
        for i, width in enumerate(stages.num_observations):
            rule = node.rule.decisions[i] if node is not None and node.rule is not None else np.zeros(0, int)
            rule = rule if rule.size else np.zeros(1, int)
            actions[i].append(rule)
            moved = node.moved if node is not None else None
            nowhere = np.full((len(rule), width), -1)
            successors[i].append(nowhere if moved is None else moved.successors[i])
        node = node.child if node is not None else None
    return tuple(
        FiniteStateController(tuple(does), tuple(leads[:-1]))
        for does, leads in zip(actions, successors, strict=True)
    )
