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
from marco.learners.candidates import (
    Best,
    Imagined,
    best_of,
    better,
    imagined_return,
    winning_policy,
    winning_value,
)
from marco.learners.parallel import (
    EVALUATION_EPISODES,
    Estimate,
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
from marco.rollout import num_members
from marco.trees import repeated
from marco.types import Spec
from marco.units import Units

EnvironmentsAt = Callable[[float], Environment]
"""The environments of all seeds when this share of a training is over: they may change on the way."""

SEGMENTS = 10
"""Segments of a training. More would cost time, since programs side by side wait for each other."""

BEHIND = 0.5
"""From half of a race on, teams that have gained less than this share of what the best has are dropped."""

STEPS_AGAIN = 50
"""At the end teams are evaluated again in as many rounds as episodes fit into so many steps: values differ
by less than the standard error of one round, 0.011 on `switch`."""

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
    floor: Float[np.ndarray, " S"] | None = None,
) -> Iterator[Race]:
    """Train one team per learner from scratch in every seed's environment, and keep the best so far.

    After every segment all teams are evaluated in `model`. Once nothing is gained any more the best team of a
    seed stands, and when that is so for all seeds the race ends. With `continued` there is one team, which is
    trained on to the end from that state (axis S) and kept as it ends. Without `units` (axis S) of real data
    learners measure them as they train. Gains are measured from the `floor`, what random play earns; without
    it no team is dropped.
    """
    contenders = _contenders(keys, learners, model.spec, continued, units)
    train = train_all if len(contenders) == 1 else train_all_on_one_core
    best: dict[Learner, Best] = {}
    stands = np.zeros(keys.init.shape[0], bool)
    history: list[Float[np.ndarray, " S"]] = []
    dropped = np.zeros(keys.init.shape[0], int)
    ends = np.arange(SEGMENTS + 1) * updates // SEGMENTS
    for number, more in enumerate(np.diff(ends).tolist(), start=1):
        found = _segment(contenders, train, envs((number - 1) / SEGMENTS), model, more, first=number == 1)
        for one, (policy, value) in zip(contenders, found, strict=True):
            one.reached = np.maximum(one.reached, np.asarray(value.mean).max(1))
            so_far = best.get(one.learner) if continued is None else None
            best[one.learner] = better(so_far, policy, jnp.where(stands[:, None], -jnp.inf, value.mean))
        standing = tuple(best[kind] for kind in distinct(learners))
        history.append(winning_value(standing))
        noise = np.concatenate([np.asarray(value.error) for _, value in found], axis=1).max(1)
        if continued is None:
            stands |= stale(history, noise)
        taken = dropped + sum(one.taken for one in contenders)
        yield Race(1.0 if stands.all() else number / SEGMENTS, standing, taken)
        if stands.all():
            return
        if floor is not None and number >= SEGMENTS // 2:
            contenders = still_in(contenders, floor)
            dropped = taken - sum(one.taken for one in contenders)


@dataclass
class Contender:
    """Restarts that are trained by one program, on their way through a race."""

    learner: Learner
    keys: RestartKeys
    state: TrainingState
    begun: Int[np.ndarray, " S"]
    """Samples before the race."""
    reached: Float[np.ndarray, " S"]
    """The best value of any of them so far."""

    @property
    def taken(self) -> Int[np.ndarray, " S"]:
        """Samples since the race began."""
        return np.asarray(self.state.samples).sum(-1) - self.begun


def _contenders(
    keys: RestartKeys,
    learners: Sequence[Learner],
    spec: Spec,
    continued: TrainingState | None,
    units: Units | None,
) -> list[Contender]:
    found = []
    for part in groups(learners):
        own = keys.of(part.members)
        state = init_all(own.init, part.learner, spec)
        if continued is not None:
            state = repeated(continued)
        if units is not None:
            state = with_units(part.learner, state, units)
        samples = np.asarray(state.samples).sum(-1)
        found.append(Contender(part.learner, own, state, samples, np.full(samples.shape, -np.inf)))
    return found


def _segment(
    contenders: Sequence[Contender],
    train: Any,
    env: Environment,
    model: Environment,
    updates: int,
    first: bool,
) -> list[tuple[Policy, Estimate]]:
    """Train all contenders for so many updates more; their greedy teams, and what these are worth."""
    kinds = [one.learner for one in contenders]
    calls = [(one.keys.train, one.state, env, one.learner, updates) for one in contenders]
    for one, (state, _) in zip(contenders, _run(train, calls, kinds, first), strict=True):
        one.state = state
    policies = [greedy_all(one.learner, one.state) for one in contenders]
    asked = [(one.keys.evaluate, team, model) for one, team in zip(contenders, policies, strict=True)]
    return list(zip(policies, _run(evaluate_all, asked, kinds, first), strict=True))


def still_in(contenders: Sequence[Contender], floor: Float[np.ndarray, " S"]) -> list[Contender]:
    """Those that have gained enough over the floor, in some seed, beside the best of them.

    Not more is asked of them: on `switch` VDN leads at half of the training, and QMIX wins.
    """
    reached = np.stack([one.reached for one in contenders])
    least = floor + BEHIND * (reached.max(0) - floor)
    keeps = ((reached >= least) | (reached.max(0) <= floor)).any(1)
    return [one for one, keep in zip(contenders, keeps, strict=True) if keep]


def stale(
    history: Sequence[Float[np.ndarray, " S"]], noise: Float[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    """Whether the best value of each seed has risen by no more than noise for too long.

    `history` has it after each segment so far.
    """
    if len(history) < SEGMENTS // 2 + PATIENCE:
        return np.zeros(len(noise), bool)
    return np.asarray(history[-1] - history[-1 - PATIENCE] <= noise)


def evaluate_again(
    keys: RestartKeys, model: Environment, learners: Sequence[Learner], best: tuple[Best, ...]
) -> Imagined:
    """The values of the best teams by fresh episodes: the best of many was also lucky when it was chosen.

    After the best teams of the learners, `best` may have others, which were not trained here. They may differ
    by little, so that each plays many episodes, in rounds of the same shapes as in the race: nothing is
    compiled again.
    """
    parts, kinds = groups(learners), distinct(learners)
    rounds = again_rounds(model.spec.horizon)
    calls: list[tuple[Any, ...]] = []
    for part in parts:
        policy = repeated(best[kinds.index(part.learner)].policy, len(part.members))
        calls += [(own, policy, model) for own in _split(keys.of(part.members).again, rounds)]
    for one in best[len(kinds) :]:
        policy = repeated(one.policy)
        calls += [(own, policy, model) for own in _split(keys.again[:, :1], rounds)]
    of_parts = [*(kinds.index(part.learner) for part in parts), *range(len(kinds), len(best))]
    whose = [who for who in of_parts for _ in range(rounds)]
    found = side_by_side(_call(evaluate_all), calls)

    def mean_of(name: str) -> Float[Array, "C S ..."]:
        each = [np.asarray(getattr(value, name)) for value in found]
        of = [[one for who, one in zip(whose, each, strict=True) if who == i] for i in range(len(best))]
        return jnp.asarray(np.stack([np.concatenate(values, 1).mean(1) for values in of]))

    there = np.isfinite(np.stack([np.asarray(one.value) for one in best]))
    by_member = jnp.where(there[..., None], mean_of("by_member"), -jnp.inf)
    episodes = jnp.int32(rounds * EVALUATION_EPISODES)
    return Imagined(by_member, mean_of("error") * EVALUATION_EPISODES**0.5, episodes)


def again_rounds(horizon: int) -> int:
    """How many times as many episodes are played as in the race: more, where they are short."""
    return max(1, STEPS_AGAIN // horizon)


@partial(jax.jit, static_argnames="rounds")
def _split(keys: Key[Array, "S R"], rounds: int) -> list[Key[Array, "S R"]]:
    drawn = jax.vmap(jax.vmap(lambda key: jax.random.split(key, rounds)))(keys)
    return [drawn[..., number] for number in range(rounds)]


def imagined_like(model: Environment, best: tuple[Best, ...]) -> Imagined:
    """The shapes of what `evaluate_again` gives."""
    shape = (len(best), *best[0].value.shape)

    def shapes(models: Environment) -> Imagined:
        one = jax.tree.map(lambda leaf: leaf[0], models)
        by_member = jnp.zeros((*shape, num_members(one, EVALUATION_EPISODES)))
        return Imagined(by_member, jnp.zeros(shape), jnp.int32(0))

    return jax.eval_shape(shapes, model)


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
    again = evaluate_again(keys, envs, learners, last.best)
    return winning_policy(last.best, 0), float(imagined_return(again, last.best).mean[0])


def best_like(keys: Key[Array, " S"], learners: Sequence[Learner], spec: Spec) -> tuple[Best, ...]:
    """The shapes of the best teams of a race."""

    def shapes() -> tuple[Best, ...]:
        each = [greedy_all(kind, init_all(keys[:, None], kind, spec)) for kind in distinct(learners)]
        return tuple(best_of(policy, jnp.zeros((len(keys), 1))) for policy in each)

    return jax.eval_shape(shapes)


def _run(function: Any, calls: list[Any], kinds: Sequence[Learner], compile_first: bool) -> list[Any]:
    """A compiled function on every contender, side by side."""
    shared = Counter(kinds)
    if compile_first and max(shared.values()) > 1:  # else threads that share a program would all compile it
        ones = dict(zip(kinds, calls, strict=True))
        side_by_side(lambda call: function.lower(*call).compile() and None, list(ones.values()))
    return side_by_side(_call(function), calls)


def _call(function: Any) -> Callable[[Any], Any]:
    return lambda call: function(*call)


def _after(before: Segment, progress: float, states: TrainingState, metrics: Metrics) -> Segment:
    # A segment may find nothing left to do, when a short training is cut into many.
    moved = np.asarray(states.updates) > np.asarray(before.states.updates)
    returns = np.where(moved, np.asarray(metrics["return"]), before.returns)
    steps = before.steps + np.asarray(states.samples) - np.asarray(before.states.samples)
    return Segment(progress, states, returns, steps)
