"""A last word from the world: the best teams of the last model play for real, and one of them is chosen.

Teams find out where a model is wrong, so an imagined return may be a promise that nobody keeps. A few real
episodes tell: where they agree with the model, its word on small differences counts; where they do not, what
was earned for real does. One of the teams was trained without the model, so that a bad one does no harm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from marco.algorithm.collect import whole_returns
from marco.algorithm.expectation import Expected, expected_of_seed
from marco.data.dataset import Dataset
from marco.learners.base import Learner
from marco.learners.candidates import Best, Imagined
from marco.learners.restarts import distinct
from marco.policies.base import EpsilonGreedy, Policy

ROUNDS = 2
"""All teams play in the first half of the trial, the two that stand best after it in the second."""
FINALISTS = 2
FAR = 0.1
"""A promise is broken by this share of the range of real returns."""
LEAST_EPISODES = 2
"""Real episodes of a team in the first round, at least: where there is room for fewer, the teams that the
model thinks least of do not play."""


Stint = tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"]]
"""From which sample to which a team plays, in every seed."""


def candidate_names(
    learners: Sequence[Learner], planned: bool, offline: Sequence[Learner]
) -> tuple[str, ...]:
    """What the candidates are called, in the order in which they are kept."""
    trained = [_name(learner) for learner in distinct(learners)]
    return (*trained, *(["planned"] if planned else []), *(f"offline {_name(one)}" for one in offline))


def _name(learner: Learner) -> str:
    return str(getattr(learner, "mixer", type(learner).__name__.lower()))


class Candidate(NamedTuple):
    """A team that could have been chosen."""

    name: str
    """Its learner; `planned`, by the exact planner; `offline ...`, trained without the model."""
    imagined: float
    """Its return in the model."""
    real: float | None
    """Its mean return in the trial; None if it did not play."""
    episodes: int
    """Real episodes of the trial."""
    expected: float
    """What it is expected to earn for real, by the model and the trial together."""
    error: float
    """The standard error of that."""

    @property
    def interval(self) -> tuple[float, float]:
        """Between what the real return is expected to be, 95 times in 100."""
        return self.expected - 1.96 * self.error, self.expected + 1.96 * self.error


@dataclass(frozen=True)
class Trial:
    """The candidates of every seed, and the part of the budget in which they play for real."""

    names: tuple[str, ...]
    best: tuple[Best, ...]
    imagined: Imagined
    dataset: Dataset
    begin: int
    end: int
    """The budget."""
    horizon: int
    offline: int
    """How many of the candidates, the last ones, never saw the model."""
    floor: Float[np.ndarray, " S"]
    """What random play earns."""

    def turns(self) -> Iterator[tuple[Policy, Int[np.ndarray, " S"]]]:
        """Who plays next, up to which sample; what was earned before is asked when the round begins."""
        for number in range(ROUNDS):
            for one, (since, until) in zip(self.best, self._round(number), strict=True):
                if (until > since).any():
                    yield acting_for_real(one.policy), until

    def progress(self, samples: int) -> float:
        """How much of the trial is over, after so many samples."""
        return float(np.clip((samples - self.begin) / (self.end - self.begin), 0.0, 0.99))

    def expected(self, rounds: int = ROUNDS) -> list[Expected]:
        """What the candidates of each seed are expected to earn for real, after so many rounds."""
        earned = self.earned(rounds)
        each = zip(earned, self.floor.tolist(), strict=True)
        return [expected_of_seed(self.imagined, seed, own, low) for seed, (own, low) in enumerate(each)]

    def earned(self, rounds: int = ROUNDS) -> list[list[Float[np.ndarray, " _"]]]:
        """The real returns of each candidate of each seed."""
        played = [self._round(number) for number in range(rounds)]

        def of(seed: int, team: int) -> Float[np.ndarray, " _"]:
            stints = [(int(one[team][0][seed]), int(one[team][1][seed])) for one in played]
            found = [self.dataset.episodes(seed, until, since) for since, until in stints if until > since]
            return np.concatenate([np.zeros(0), *(whole_returns(episodes) for episodes in found)])

        return [[of(seed, team) for team in range(len(self.best))] for seed in range(self.dataset.seeds)]

    def metrics(self, chosen: Int[np.ndarray, " S"]) -> dict[str, list[Any]]:
        """What the chosen teams earned in the trial, and are expected to earn."""
        earned, found = self.earned(), self.expected()
        own = [returns[which] for returns, which in zip(earned, chosen, strict=True)]
        return {
            "trial_return": [float(one.mean()) if len(one) else None for one in own],
            "expected_return": [float(one.mean[which]) for one, which in zip(found, chosen, strict=True)],
        }

    def warnings(self, seeds: Sequence[int]) -> tuple[str, ...]:
        """A line for each seed whose team is expected to earn far less for real than in the model.

        Far is a tenth of the range of all real returns.
        """
        found = []
        for index, seed in enumerate(seeds):
            team, real = self.candidates(index)[0], whole_returns(self.dataset.episodes(index))
            gap = team.imagined - team.expected
            if len(real) and gap > FAR * (real.max() - real.min()):
                found.append(
                    f"the team of seed {seed} earns {team.imagined:.4g} in the model and is expected to earn "
                    f"{team.expected:.4g} for real, after {team.episodes} real episodes: the model is not to "
                    "be trusted there."
                )
        return tuple(found)

    def candidates(self, seed: int) -> tuple[Candidate, ...]:
        """The candidates of a seed; the first is the team that was chosen."""
        found, earned = self.expected()[seed], self.earned()[seed]
        imagined = self.imagined.mean[:, seed]
        order = np.argsort([-float(one.value[seed]) for one in self.best], kind="stable")
        return tuple(
            Candidate(
                self.names[team],
                float(imagined[team]),
                float(earned[team].mean()) if len(earned[team]) else None,
                len(earned[team]),
                float(found.mean[team]),
                float(found.error[team]),
            )
            for team in order.tolist()
            if np.isfinite(found.mean[team])
        )

    def _round(self, number: int) -> list[Stint]:
        """Who plays how long in a round."""
        seeds = self.dataset.seeds
        begin, end = (self.begin + (self.end - self.begin) * n // ROUNDS for n in (number, number + 1))
        if number:
            standing = np.stack([one.cautious for one in self.expected(number)])
        else:
            standing = self._by_the_model()
        plays = who_plays(standing, end - begin, number, self.horizon)
        return stints(np.full(seeds, begin), np.full(seeds, end), plays)

    def _by_the_model(self) -> Float[np.ndarray, "S C"]:
        """As the model ranks them; but who never saw it comes second at least, since the model may be bad."""
        standing = np.array(self.imagined.cautious.T)
        first = len(self.names) - self.offline
        second = np.nextafter(standing.max(1, keepdims=True), -np.inf)
        standing[:, first:] = np.maximum(standing[:, first:], second)
        return standing


def acting_for_real(policy: Policy) -> Policy:
    """Greedily; in the form in which teams collect, since the same programs then play."""
    seeds = jax.tree.leaves(policy)[0].shape[0]
    return jax.vmap(EpsilonGreedy)(policy, jnp.zeros(seeds))


def who_plays(
    standing: Float[np.ndarray, "S C"], room: int, number: int, horizon: int
) -> Bool[np.ndarray, "S C"]:
    """Which teams play in a round of so many samples: all that there is room for, later the best alone."""
    most = max(1, room // (LEAST_EPISODES * horizon))
    most = min(most, FINALISTS) if number else most
    place = np.argsort(np.argsort(-standing, axis=1, kind="stable"), axis=1, kind="stable")
    return (place < most) & np.isfinite(standing)


def stints(
    begin: Int[np.ndarray, " S"], end: Int[np.ndarray, " S"], plays: Bool[np.ndarray, "S C"]
) -> list[Stint]:
    """From which sample to which each team plays: equal parts, one after the other."""
    share, turns = plays.sum(1), plays.cumsum(1)
    until = begin[:, None] + (end - begin)[:, None] * turns // np.maximum(share, 1)[:, None]
    since = np.concatenate([begin[:, None], until[:, :-1]], axis=1)
    return [(since[:, team], until[:, team]) for team in range(plays.shape[1])]
