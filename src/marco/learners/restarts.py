"""Training in segments, and the best of several teams.

A long training is cut into ten segments, so that it can report, stop soon when asked to, and be evaluated on
the way. It ends with the same bits as one that is not cut, and no segment is compiled for itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from marco.environments.base import Environment
from marco.learners.base import Learner, Metrics
from marco.learners.parallel import (
    evaluate_all,
    greedy_all,
    init_all,
    side_by_side,
    stack_seeds,
    train_all,
    train_all_on_one_core,
    train_seeds_until,
    with_units,
)
from marco.learners.training import TrainingState
from marco.policies.base import Policy
from marco.types import Spec
from marco.units import Units

EnvironmentsAt = Callable[[float], Environment]
"""The environments of all seeds when this share of a training is over: they may change on the way."""

SEGMENTS = 10
"""Segments of a training. More would cost time, since programs side by side wait for each other."""

PATIENCE = 3
"""A race ends when its best team has gained nothing for so many segments, all in the second half.

In the first half exploration and demonstrations end: teams that stood still there have risen later.
"""


class Segment(NamedTuple):
    """A training after one more segment; seeds first."""

    progress: float
    """How much of the training is over, from 0 to 1."""
    states: TrainingState
    returns: Float[np.ndarray, "S *R"]
    """The mean return while training, in the last segment."""
    steps: Int[np.ndarray, "S *R"]
    """Steps since the training began."""


def train_for(
    keys: Key[Array, " S"], envs: EnvironmentsAt, learner: Learner, states: TrainingState, steps: int
) -> Iterator[Segment]:
    """Train one policy per seed for at least `steps` more steps."""
    first = np.asarray(states.samples)
    segment = Segment(0.0, states, np.zeros(first.shape), np.zeros_like(first))
    for number in range(1, SEGMENTS + 1):
        targets = jnp.asarray(first + steps * number // SEGMENTS, jnp.int32)
        trained, metrics = train_seeds_until(keys, envs(segment.progress), learner, segment.states, targets)
        segment = _after(segment, number / SEGMENTS, trained, metrics)
        yield segment


class RestartKeys(NamedTuple):
    """One key for each use of each restart."""

    init: Key[Array, "S R"]
    train: Key[Array, "S R"]
    evaluate: Key[Array, "S R"]
    again: Key[Array, "S R"]

    def of(self, members: Sequence[int]) -> "RestartKeys":
        """The keys of some of the restarts."""
        return RestartKeys(*(keys[:, jnp.asarray(members)] for keys in self))


@partial(jax.jit, static_argnames="restarts")
def restart_keys(keys: Key[Array, " S"], restarts: int) -> RestartKeys:
    """Split the key of every seed."""

    drawn = jax.vmap(lambda key: jax.random.split(key, (restarts, 4)))(keys)
    return RestartKeys(*(drawn[..., use] for use in range(4)))


class Best(NamedTuple):
    """The best team of one learner so far, of every seed, and its value when it was chosen."""

    policy: Policy
    value: Float[Array, " S"]


@dataclass(frozen=True)
class Group:
    """Restarts with the same learner, trained by one program."""

    learner: Learner
    members: tuple[int, ...]


class Race(NamedTuple):
    """Where the race between restarts stands."""

    progress: float
    best: tuple[Best, ...]
    """For each different learner, in the order of `distinct`."""
    steps: Int[np.ndarray, " S"]
    """Steps of all restarts together since the race began."""


def distinct(learners: Sequence[Learner]) -> tuple[Learner, ...]:
    """The different learners, in the order in which they appear."""
    return tuple(dict.fromkeys(learners))


def groups(learners: Sequence[Learner]) -> list[Group]:
    """Restarts that share a program: all of one learner. On a CPU each has a call of its own, for a core."""
    alone = jax.default_backend() == "cpu"
    found = []
    for kind in distinct(learners):
        members = tuple(index for index, learner in enumerate(learners) if learner == kind)
        found += [Group(kind, (member,)) for member in members] if alone else [Group(kind, members)]
    return found


def race(
    keys: RestartKeys,
    envs: EnvironmentsAt,
    model: Environment,
    learners: Sequence[Learner],
    updates: int,
    continued: TrainingState | None = None,
    units: Units | None = None,
) -> Iterator[Race]:
    """Train one team per learner from scratch in every seed's environment, and keep the best so far.

    After every segment all teams are evaluated in `model`. Once nothing is gained any more the best team of a
    seed stands, and when that is so for all seeds the race ends. With `continued` there is one team, which is
    trained on to the end from that state (axis S) and kept as it ends. Without `units` (axis S) of real data
    learners measure them as they train.
    """
    parts = groups(learners)
    train = train_all if len(parts) == 1 else train_all_on_one_core
    spec = model.spec
    states = [init_all(keys.of(part.members).init, part.learner, spec) for part in parts]
    if continued is not None:
        states = [jax.tree.map(lambda leaf: leaf[:, None], continued)]
    if units is not None:
        states = [with_units(part.learner, state, units) for part, state in zip(parts, states, strict=True)]
    before = [np.asarray(state.samples).sum(-1) for state in states]
    best: dict[Learner, Best] = {}
    stands = np.zeros(keys.init.shape[0], bool)
    history: list[Float[np.ndarray, " S"]] = []
    ends = np.arange(SEGMENTS + 1) * updates // SEGMENTS
    for number, more in enumerate(np.diff(ends).tolist(), start=1):
        env = envs((number - 1) / SEGMENTS)
        calls = [
            (keys.of(part.members).train, state, env, part.learner, more)
            for part, state in zip(parts, states, strict=True)
        ]
        states = [state for state, _ in _run(train, calls, parts, compile_first=number == 1)]
        policies = [greedy_all(part.learner, state) for part, state in zip(parts, states, strict=True)]
        asked = [
            (keys.of(part.members).evaluate, policy, model)
            for part, policy in zip(parts, policies, strict=True)
        ]
        found = _run(evaluate_all, asked, parts, compile_first=number == 1)
        for part, policy, value in zip(parts, policies, found, strict=True):
            so_far = best.get(part.learner) if continued is None else None
            best[part.learner] = better(so_far, policy, jnp.where(stands[:, None], -jnp.inf, value.mean))
        standing = tuple(best[kind] for kind in distinct(learners))
        history.append(winning_value(standing))
        noise = np.concatenate([np.asarray(value.error) for value in found], axis=1).max(1)
        if continued is None:
            stands |= stale(history, noise)
        taken = sum(np.asarray(s.samples).sum(-1) - b for s, b in zip(states, before, strict=True))
        yield Race(1.0 if stands.all() else number / SEGMENTS, standing, taken)
        if stands.all():
            return


def stale(
    history: Sequence[Float[np.ndarray, " S"]], noise: Float[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    """Whether the best value of each seed has risen by no more than noise for too long.

    `history` has it after each segment so far.
    """
    if len(history) < SEGMENTS // 2 + PATIENCE:
        return np.zeros(len(noise), bool)
    return np.asarray(history[-1] - history[-1 - PATIENCE] <= noise)


class Imagined(NamedTuple):
    """The value of each seed's team in its model."""

    mean: Float[Array, " S"]
    low: Float[Array, " S"]
    """In the member of the model that thinks least of it."""
    high: Float[Array, " S"]
    """In the member that thinks most of it."""


def evaluate_again(
    keys: RestartKeys, model: Environment, learners: Sequence[Learner], best: tuple[Best, ...]
) -> Imagined:
    """The value of the winner by fresh episodes: the best of many was also lucky when it was chosen.

    After the best teams of the learners, `best` may have others, which were not trained.
    """
    parts, kinds = groups(learners), distinct(learners)
    calls = []
    for part in parts:  # of the same shapes as in the race: nothing is compiled again
        policy = best[kinds.index(part.learner)].policy
        calls.append((keys.of(part.members).again, _repeated(policy, len(part.members)), model))
    for one in best[len(kinds) :]:
        calls.append((keys.again[:, :1], _repeated(one.policy, 1), model))
    whose = [*(kinds.index(part.learner) for part in parts), *range(len(kinds), len(best))]
    found = [np.asarray(value.by_member) for value in side_by_side(_call(evaluate_all), calls)]
    each = [
        np.concatenate([value for who, value in zip(whose, found, strict=True) if who == index], 1)
        for index in range(len(best))
    ]
    values = np.stack([value.mean(1) for value in each])  # candidate, seed, member
    own = np.take_along_axis(values, winner(best)[None, :, None], axis=0)[0]
    return Imagined(*(jnp.asarray(part, jnp.float32) for part in (own.mean(-1), own.min(-1), own.max(-1))))


def winner(best: tuple[Best, ...]) -> Int[np.ndarray, " S"]:
    """Which learner's team is the best, for every seed."""
    return np.argmax(np.stack([np.asarray(one.value) for one in best]), axis=0)


def winning_value(best: tuple[Best, ...]) -> Float[np.ndarray, " S"]:
    """The value of the best team of every seed."""
    return np.max(np.stack([np.asarray(one.value) for one in best]), axis=0)


def winning_policy(best: tuple[Best, ...], seed: int) -> Policy:
    """The best team of one seed (by its index)."""
    one = best[int(winner(best)[seed])]
    # Gathered to one device: evaluation is small, and runs where the host can look at it.
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf[seed])), one.policy)


def train_best(
    key: PRNGKeyArray, env: Environment, learners: Sequence[Learner], updates: int
) -> tuple[Policy, float]:
    """Train one team per learner in one environment; the best of them, and its value there.

    For environments whose samples are free, as learned ones are: restarts differ more by chance than by their
    settings.
    """
    envs = stack_seeds([env])
    keys = restart_keys(key[None], len(learners))
    *_, last = race(keys, lambda progress: envs, envs, learners, updates)
    return winning_policy(last.best, 0), float(evaluate_again(keys, envs, learners, last.best).mean[0])


def best_like(keys: Key[Array, " S"], learners: Sequence[Learner], spec: Spec) -> tuple[Best, ...]:
    """The shapes of the best teams of a race."""

    def shapes() -> tuple[Best, ...]:
        each = [greedy_all(kind, init_all(keys[:, None], kind, spec)) for kind in distinct(learners)]
        return tuple(_best(policy, jnp.zeros((len(keys), 1))) for policy in each)

    return jax.eval_shape(shapes)


def better(before: Best | None, policies: Policy, values: Float[Array, "S R"]) -> Best:
    """The best of an earlier team and of new ones (axes S R)."""
    return _best(policies, values) if before is None else _better(before, policies, values)


@jax.jit
def _best(policies: Policy, values: Float[Array, "S R"]) -> Best:
    def one(policies: Policy, values: Float[Array, " R"]) -> Best:
        index = jnp.argmax(values)
        return Best(jax.tree.map(lambda leaf: leaf[index], policies), values[index])

    return jax.vmap(one)(policies, values)


@jax.jit
def _better(before: Best, policies: Policy, values: Float[Array, "S R"]) -> Best:
    def one(old: Best, new: Best) -> Best:
        return jax.tree.map(lambda then, now: jnp.where(new.value > old.value, now, then), old, new)

    return jax.vmap(one)(before, _best(policies, values))


def _run(function: Any, calls: list[Any], parts: list[Group], compile_first: bool) -> list[Any]:
    """A compiled function on every group, side by side."""
    shared = Counter(part.learner for part in parts)
    if compile_first and max(shared.values()) > 1:  # else threads that share a program would all compile it
        ones = {part.learner: call for part, call in zip(parts, calls, strict=True)}
        side_by_side(lambda call: function.lower(*call).compile() and None, list(ones.values()))
    return side_by_side(_call(function), calls)


def _repeated(policy: Policy, count: int) -> Policy:
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], count, axis=1), policy)


def _call(function: Any) -> Callable[[Any], Any]:
    return lambda call: function(*call)


def _after(before: Segment, progress: float, states: TrainingState, metrics: Metrics) -> Segment:
    # A segment may find nothing left to do, when a short training is cut into many.
    moved = np.asarray(states.updates) > np.asarray(before.states.updates)
    returns = np.where(moved, np.asarray(metrics["return"]), before.returns)
    steps = before.steps + np.asarray(states.samples) - np.asarray(before.states.samples)
    return Segment(progress, states, returns, steps)
