"""The learning loop of all methods: plan, evaluate the plan exactly, play real episodes, plan again."""

from typing import NamedTuple

import numpy as np

from marco.tabular.policies import value
from marco.tabular.rmax.known_model import Counts, Task
from marco.tabular.rmax.methods import Method, Snapshot
from marco.tabular.rmax.simulator import Actor, Simulator, Step


class PlanPhase(NamedTuple):
    """The episodes played with one plan. The regret is exact and in the problem's own units."""

    episodes: int
    samples: int
    """Real steps."""
    regret: float
    """The optimum less the value of the planned team."""
    escape: float
    """The exact probability that an episode meets an unknown pair; nan if none is unknown."""
    known: int
    """The number of known pairs."""
    escapes: int
    """Episodes that met a pair which was unknown at the time."""
    certified: bool
    """Whether the solver proved the team optimal in the model."""


class LearningRun(NamedTuple):
    """A run of a method: its phases, and whether its last team is final."""

    phases: list[PlanPhase]
    final: bool

    @property
    def regret(self) -> float:
        """The regret of the last team."""
        return self.phases[-1].regret

    def worse_than(self, margin: float) -> int:
        """How many episodes were played while the team's regret was above a margin."""
        return sum(phase.episodes for phase in self.phases if phase.regret > margin)

    def samples_until(self, margin: float) -> int | None:
        """Real steps after which the regret stays within a margin; None if it does not at the end."""
        if self.regret > margin:
            return None
        bad = [i for i, phase in enumerate(self.phases) if phase.regret > margin]
        return sum(phase.samples for phase in self.phases[: bad[-1] + 1]) if bad else 0

    @property
    def samples(self) -> int:
        """All real steps."""
        return sum(phase.samples for phase in self.phases)


def learn(
    rng: np.random.Generator, task: Task, horizon: int, method: Method, episodes: int, optimum: float
) -> LearningRun:
    """Learn for a number of episodes, or until the plan is final.

    `horizon` counts steps of the table, as `DecPOMDP.steps` gives them. `optimum` is the value of the best
    team, from which the regret is computed.
    """
    simulator, counts = Simulator(task, horizon), Counts(task)
    phases: list[PlanPhase] = []
    plan, done = None, 0
    while done < episodes:
        plan = method.plan(rng, counts, horizon, plan)
        regret = optimum - value(task.problem.dynamics, plan.team)
        played = _Played(episodes - done)  # nothing more is learned with a final plan
        if not plan.final:
            played = _play(rng, simulator, plan.actor, method, counts, done, episodes - done)
        phases.append(
            PlanPhase(
                episodes=played.episodes,
                samples=played.samples,
                regret=regret,
                escape=plan.escape,
                known=plan.known,
                escapes=played.escapes,
                certified=plan.certified,
            )
        )
        done += played.episodes
    return LearningRun(phases, plan is not None and plan.final)


class _Played(NamedTuple):
    """What was played with one plan."""

    episodes: int
    samples: int = 0
    escapes: int = 0


def _play(
    rng: np.random.Generator,
    simulator: Simulator,
    actor: Actor,
    method: Method,
    counts: Counts,
    done: int,
    most: int,
) -> _Played:
    """Play at most `most` episodes, until the method wants a new plan."""
    snapshot, samples, escapes = Snapshot(done, 0, counts.visits.copy()), 0, 0
    while snapshot.played < most and not method.should_replan(counts, snapshot):
        steps = simulator.episode(rng, actor)
        escapes += _record(counts, method, steps)
        samples += len(steps) - simulator.task.problem.prologue
        snapshot = snapshot._replace(played=snapshot.played + 1)
    return _Played(snapshot.played, samples, escapes)


def _record(counts: Counts, method: Method, steps: list[Step]) -> bool:
    """Count the steps of an episode that the method records; whether there are any."""
    given = counts.task.given
    fresh = [
        step
        for step in steps
        if not given[step.state] and method.should_record(counts, step.state, step.action)
    ]
    for step in fresh:
        if method.should_record(counts, step.state, step.action):  # an episode may meet a pair twice
            counts.add(step.state, step.action, step.outcome)
    return bool(fresh)
