"""How well MARCO's model learns an environment from random play, beside a yardstick given the same rows.

Three sides learn from the same episodes, and are judged by the same fresh ones: MARCO's default model, as a
run fits it (of described columns where the spec is a guess, without what is certain);
`boosting`, gradient-boosted trees that are shown the inputs of the model's own networks; and
`boosting, related`, which are shown every feature as a number, the differences between features of one kind,
and are asked for changes. Losses are those of `yardstick`: nats, summed over the features of a component,
and the share of the variance that is left, averaged over its values.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marco.environments.base import Environment, HostWorld, guessed_of, known_of
from marco.model.components import Component
from marco.model.config import ModelConfig
from marco.model.describe import describe
from marco.model.early_stopping import Examples
from marco.model.fit import ModelPlan, examples
from marco.model.inputs import ComponentName, Inputs
from marco.model.report.held_out import out_of_bag
from marco.model.rows import Data
from marco.model.views import Described, View, make_view
from marco.policies.base import RandomPolicy
from marco.rollout import play, rollouts
from marco.types import Categorical, Episode, Spec
from record import Row
from yardstick import Loss, chained, of_probabilities, of_values, related

TEST_STEPS = 4_000
TEST_SEED = 1_000_000
ROOM = 10_000
"""For how many samples there is room, as in a run with this budget: fewer need no program of their own."""
MOST_FEATURES = 24
"""The features of a component that are compared; of wider ones so many are drawn."""


class Task(NamedTuple):
    """One component as a supervised problem: the same columns for every side."""

    name: ComponentName
    train: Examples
    test: Examples
    classes: np.ndarray
    """Which categorical features are compared."""
    values: np.ndarray
    """Which values are."""


def measure_models(
    world: str, env: Environment | HostWorld, config: ModelConfig, samples: int, seed: int
) -> Iterator[list[Row]]:
    """The rows of each component: of the model, and of the trees."""
    played, test = (
        random_episodes(env, steps, of) for steps, of in ((samples, seed), (TEST_STEPS, TEST_SEED + seed))
    )
    plan = ModelPlan(view_of(env, played), config, env.spec, known=tuple(known_of(env).items()))
    (data,), (fresh,) = plan.gather(played, max(samples, ROOM)), plan.gather(test)
    fresh = fresh._replace(reward_values=data.reward_values)
    (spec,), plan = plan.view.model_specs(env.spec), plan.with_certain([(data,)])
    for part in plan.components():
        _, name = part
        begin = time.perf_counter()
        component, _ = jax.block_until_ready(plan.fit_component(jax.random.key(seed), (data,), part))
        seconds = time.perf_counter() - begin
        task = _task(config.inputs(spec), component, name, data, fresh)
        if task is None:
            continue
        facts = {"world": world, "component": name, "samples": samples, "seed": seed}
        facts |= {"classes": len(task.classes), "values": len(task.values)}
        rows = [{**facts, "side": "MARCO", "seconds": seconds} | summed(_of_model(component, task))]
        for side in ("boosting", "boosting, related"):
            begin = time.perf_counter()
            inputs = _own_inputs(task) if side == "boosting" else _related_inputs(spec, task, data, fresh)
            losses = chained(*inputs, groups=np.asarray(task.train.episode)[: int(task.train.number)])
            rows.append({**facts, "side": side, "seconds": time.perf_counter() - begin} | summed(losses))
        yield rows


def view_of(env: Environment | HostWorld, played: Episode) -> View:
    """What a run would fit its model to: described columns, where the spec of an environment is a guess."""
    guessed, view = guessed_of(env), make_view("centralised")
    return Described(view, describe(env.spec, [played], guessed)) if any(guessed) else view


def random_episodes(env: Environment | HostWorld, steps: int, seed: int) -> Episode:
    """Whole episodes of random play, of at most so many steps together; one at least."""
    count = 1 + steps // max(1, env.spec.horizon // 8)
    if isinstance(env, Environment):
        played = rollouts(jax.random.key(seed), env, RandomPolicy(), min(count, steps))
    else:
        keys = jax.random.split(jax.random.key(seed), 1 + steps // env.spec.horizon)
        each = [play(key, env, RandomPolicy()) for key in keys]
        played = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *each)
    whole: Any = jax.tree.map(np.asarray, played)
    fits = np.cumsum(whole.mask.sum(0)) <= steps
    number = max(1, int(fits.sum()))
    return jax.tree.map(lambda leaf: leaf[:, :number], whole)


def summed(losses: list[Loss]) -> Row:
    """Nats of all classes together, the mean share of the variance left, and where all classes are right."""
    nats = [loss.nats for loss in losses if loss.nats is not None]
    left = [loss.unexplained for loss in losses if loss.unexplained is not None]
    right = [loss.right for loss in losses if loss.right is not None]
    return {
        "nats": sum(nats) if nats else None,
        "unexplained": float(np.mean(left)) if left else None,
        "right": float(np.all(right, axis=0).mean()) if right else None,
    }


def _task(inputs: Inputs, component: Component, name: ComponentName, data: Data, fresh: Data) -> Task | None:
    """None if nothing varies: then there is nothing to learn."""
    train, test = (examples(inputs, name, component.layout, rows) for rows in (data, fresh))
    count = int(train.number)
    vary = [
        np.flatnonzero(np.ptp(np.asarray(part)[:count], axis=0) > 0) if part.shape[1] else np.zeros(0, int)
        for part in train.targets
    ]
    if not any(map(len, vary)):
        return None
    draws = np.random.default_rng(0)
    classes, values = (np.sort(draws.permutation(some)[:MOST_FEATURES]) for some in vary)
    return Task(name, train, test, classes, values)


def _of_model(component: Component, task: Task) -> list[Loss]:
    count = int(task.test.number)
    everybody = jnp.ones((component.num_members, len(task.test.x)), bool)
    predicted = out_of_bag(component, task.test, everybody)
    truth = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], task.test.targets)
    means = np.asarray(component.values.denormalise(jnp.asarray(predicted.mean)))
    numbers = np.arange(predicted.probability.shape[-1])
    of_classes = [
        of_probabilities(predicted.probability[:, f], numbers, truth.classes[:, f]) for f in task.classes
    ]
    return of_classes + [of_values(means[:, c], truth.values[:, c]) for c in task.values]


def _own_inputs(task: Task) -> tuple[Any, ...]:
    found: list[Any] = []
    for rows in (task.train, task.test):
        count = int(rows.number)
        classes, values = (np.asarray(part)[:count] for part in rows.targets)
        targets = [classes[:, f] for f in task.classes] + [values[:, c] for c in task.values]
        found += [np.asarray(rows.x)[:count], targets]
    return tuple(found)


def _related_inputs(spec: Spec, task: Task, data: Data, fresh: Data) -> tuple[Any, ...]:
    """Features as numbers with their differences; of the next state the changes are asked for."""
    own, found = _own_inputs(task), []
    for index, rows in enumerate((data, fresh)):
        targets = list(own[2 * index + 1])
        if task.name in ("dynamics", "reward", "termination"):
            count = int(rows.num_steps)
            state, then = (
                _as_numbers(spec, np.asarray(part)[:count])
                for part in (rows.steps.state, rows.steps.next_state)
            )
            parts = [related(spec.state, state), _actions(spec, rows.steps.actions, count)]
            if task.name == "dynamics":
                before = [state[:, at] for at in _categorical_columns(spec)]
                targets = [
                    (y - before[f]).astype(int) if index < len(task.classes) else y
                    for index, (f, y) in enumerate(zip([*task.classes, *task.values], targets, strict=True))
                ]
            else:
                parts += [related(spec.state, then), then - state]
        else:
            count = int(rows.num_timesteps)
            state = _as_numbers(spec, np.asarray(rows.timesteps.state)[:count])
            parts = [related(spec.state, state), _actions(spec, rows.timesteps.previous_actions, count)]
        found += [np.column_stack(parts), targets]
    return tuple(found)


def _as_numbers(spec: Spec, columns: np.ndarray) -> np.ndarray:
    """A class as its number, in one column; values as they are."""
    parts, at = [], 0
    for feature in spec.state:
        block = columns[:, at : at + feature.width]
        at += feature.width
        is_class = isinstance(feature, Categorical)
        parts.append(np.asarray(feature.decode(jnp.asarray(block)))[:, None] if is_class else block)
    return np.concatenate(parts, axis=1).astype(np.float32)


def _categorical_columns(spec: Spec) -> list[int]:
    """Where the classes of `_as_numbers` are."""
    found, at = [], 0
    for feature in spec.state:
        if isinstance(feature, Categorical):
            found.append(at)
        at += 1 if isinstance(feature, Categorical) else feature.width
    return found


def _actions(spec: Spec, actions: Any, count: int) -> np.ndarray:
    """Every component of every agent's action, as numbers; -1 where there was none."""
    taken = np.asarray(actions)[:count]
    parts = []
    for index, agent in enumerate(spec.agents):
        own = agent.components_of(np.maximum(taken[:, index], 0))
        parts += [np.where(taken[:, index] < 0, -1, part) for part in own]
    return np.stack(parts, axis=1)
