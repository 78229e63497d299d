"""One loop for all learners of tables: plan, judge the plan exactly, play real episodes until it is stale."""

import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from marco.tabular.policies import Team, value
from marco.tabular.problem import Dynamics
from marco.tabular.rmax.known_model import Counts, Task
from marco.tabular.solver.search import Solution, solve

Step = tuple[int, int, int]
"""A state, the joint action in it and the outcome."""


@runtime_checkable
class Actor(Protocol):
    """Who acts in an episode; keeps what it remembers itself."""

    def begin(self) -> None:
        """An episode begins."""

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        """The joint action; only a centralised actor looks at the state."""

    def see(self, t: int, seen: list[int]) -> None:
        """What each agent sees after step t."""


class Plan(NamedTuple):
    """What a learner does next, and the team it would hand over now."""

    actor: Actor
    team: Team
    escape: float
    """The exact probability that an episode of the actor meets an unknown pair; nan if meaningless."""
    final: bool
    """Whether nothing that can still happen would change the plan."""
    certified: bool
    """Whether the planner proved its team optimal in the model."""
    value: float
    """What the team is worth in the model."""
    known: int
    """Pairs that are known."""
    seen: int = 0
    """How many samples the team was planned with, where that is not all there were."""


def best_team(
    model: Dynamics, horizon: int, before: Plan | None, seconds: float, ceiling: float = float("inf")
) -> Solution:
    """The best team in a model, found from the one before, in so many seconds of the processor.

    What a run learns then depends on how fast the machine is, but not on how busy.
    """
    team = None if before is None else before.team
    return solve(model, horizon, seconds=seconds, team=team, ceiling=ceiling, clock=time.thread_time)


@runtime_checkable
class Method(Protocol):
    """How to explore: frozen settings, and these three."""

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Decide what to do with what is known."""

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Whether a step in this pair is to be recorded."""

    def stale(self, counts: Counts, since: "Snapshot") -> bool:
        """Whether what was seen since the last plan calls for a new one."""


class Snapshot(NamedTuple):
    """What a plan was made of."""

    episodes: int
    """Episodes played before it."""
    played: int
    """Episodes played with it."""
    visits: np.ndarray


class Phase(NamedTuple):
    """A stretch of episodes with one plan, judged exactly, in the problem's own units."""

    episodes: int
    samples: int
    """Real steps."""
    regret: float
    escape: float
    known: int
    escapes: int
    """Episodes that met a pair which was unknown at the time."""
    certified: bool


class Run(NamedTuple):
    """A learner's life: its phases, and whether its last team is final."""

    phases: list[Phase]
    final: bool

    @property
    def regret(self) -> float:
        """What the last team lacks."""
        return self.phases[-1].regret

    def worse_than(self, margin: float) -> int:
        """How many episodes were played while the team lacked more than a margin."""
        return sum(phase.episodes for phase in self.phases if phase.regret > margin)

    def samples_until(self, margin: float) -> int | None:
        """Real steps after which the team never lacks more than a margin; None if it does at the end."""
        if self.regret > margin:
            return None
        bad = [i for i, phase in enumerate(self.phases) if phase.regret > margin]
        return sum(phase.samples for phase in self.phases[: bad[-1] + 1]) if bad else 0

    @property
    def samples(self) -> int:
        """All real steps."""
        return sum(phase.samples for phase in self.phases)


@dataclass(eq=False)
class World:
    """The true problem to draw from, quickly: cumulative probabilities as plain lists."""

    task: Task
    horizon: int
    start: list[float] = field(init=False)
    chance: list[list[list[float]]] = field(init=False)

    def __post_init__(self) -> None:
        true = self.task.problem.dynamics
        self.start = np.cumsum(true.d0).tolist()
        self.outcome_probabilities = np.cumsum(true.G, -1).tolist()
        self.following = true.following.tolist()
        self.seen = np.stack(np.unravel_index(true.seen, true.observations), -1).tolist()
        self.over = [False] * true.d0.size
        if self.task.problem.terminal is not None:
            self.over = self.task.problem.terminal.tolist()

    def begin(self, rng: np.random.Generator) -> int:
        """Draw a start state."""
        return bisect_right(self.start, rng.random() * self.start[-1])

    def step(self, rng: np.random.Generator, state: int, action: int) -> int:
        """Draw an outcome."""
        chance = self.outcome_probabilities[state][action]
        return bisect_right(chance, rng.random() * chance[-1])

    def episode(self, rng: np.random.Generator, actor: Actor) -> list[Step]:
        """Play until the horizon or an end."""
        state, steps = self.begin(rng), []
        actor.begin()
        for t in range(self.horizon):
            joint = actor.act(rng, t, state)
            outcome = self.step(rng, state, joint)
            steps.append((state, joint, outcome))
            state = self.following[outcome]
            if self.over[state]:
                break
            if t + 1 < self.horizon:
                actor.see(t, self.seen[outcome])
        return steps


def learn(
    rng: np.random.Generator, task: Task, horizon: int, method: Method, episodes: int, optimum: float
) -> Run:
    """Learn for so many episodes, or until the plan is final. `horizon` counts steps of the table."""
    world, counts, phases = World(task, horizon), Counts(task), []
    plan, played = None, 0
    true, prologue = task.problem.dynamics, task.problem.prologue
    while played < episodes:
        plan = method.plan(rng, counts, horizon, plan)
        regret = optimum - value(true, plan.team)
        if plan.final:
            phases.append(Phase(episodes - played, 0, regret, plan.escape, plan.known, 0, plan.certified))
            break
        snapshot, samples, escapes = Snapshot(played, 0, counts.visits.copy()), 0, 0
        while played < episodes and not method.stale(counts, snapshot):
            steps = world.episode(rng, plan.actor)
            fresh = [step for step in steps if not task.given[step[0]] and method.wants(counts, *step[:2])]
            escapes += bool(fresh)
            for step in fresh:
                if method.wants(counts, *step[:2]):  # it may have been met twice
                    counts.add(*step)
            samples += len(steps) - prologue
            played += 1
            snapshot = snapshot._replace(played=snapshot.played + 1)
        phases.append(
            Phase(snapshot.played, samples, regret, plan.escape, plan.known, escapes, plan.certified)
        )
    return Run(phases, plan is not None and plan.final)


@dataclass(eq=False)
class TeamActor:
    """A team acts; each agent slips to a random action with probability epsilon."""

    team: Team
    sizes: tuple[int, ...]
    epsilon: float = 0.0
    nodes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.actions = [[now.tolist() for now in policy.actions] for policy in self.team]
        self.successors = [[now.clip(0).tolist() for now in policy.successors] for policy in self.team]

    def begin(self) -> None:
        """Everybody is in node 0."""
        self.nodes = [0] * len(self.team)

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        """What the nodes say."""
        joint = 0
        for i, node in enumerate(self.nodes):
            slips = self.epsilon > 0.0 and rng.random() < self.epsilon
            action = int(rng.integers(self.sizes[i])) if slips else self.actions[i][t][node]
            joint = joint * self.sizes[i] + action
        return joint

    def see(self, t: int, seen: list[int]) -> None:
        """Everybody moves to its next node."""
        self.nodes = [self.successors[i][t][node][seen[i]] for i, node in enumerate(self.nodes)]
