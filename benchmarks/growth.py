"""How time and memory grow with the size of a problem, one quantity at a time.

    python benchmarks/growth.py [agents] [seeds] [members] [horizon] [width] [samples] [--minutes 5]

From a small problem (2 agents, 1 seed, 5 members, horizon 20, a state of 20 columns, 1,000 samples) one
quantity is made larger, the others stay. For each size two things are timed, compilation apart: one pass of
every component of the default model over the data, and one update of VDN with 16 episodes in the model. The
memory is what XLA reserves for them. A quantity stops growing after so many minutes, or where a size is
refused.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.algorithm.config import MarcoConfig
from marco.algorithm.fit import _fit_component, fit_models, stack_data
from marco.algorithm.limits import check_data_and_model
from marco.algorithm.presets import default_model
from marco.environments.base import Environment, Transition
from marco.learners.parallel import init_all, train_all
from marco.learners.q_learning import QLearner
from marco.model import Centralised, ModelPlan
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import ActionComponent, Agent, Continuous, Spec
from record import RESULTS, SPEED, Results

BASE = {"agents": 2, "seeds": 1, "members": 5, "horizon": 20, "width": 20, "samples": 1_000}
SIZES = {
    "agents": (2, 4, 8, 16, 32),
    "seeds": (1, 4, 16, 64, 256),
    "members": (1, 2, 5, 10, 20),
    "horizon": (5, 20, 80, 400),
    "width": (20, 64, 200, 640, 1_000),
    "samples": (1_000, 10_000, 100_000, 1_000_000),
}
MOVES = 5
UPDATES = 5


class Herd(Environment):
    """Points in the plane, `width` / 2 of them; each agent pushes one and sees it, and the next one.

    The reward is minus the mean distance of the agents' points from the middle.
    """

    agents: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @property
    def spec(self) -> Spec:
        points = tuple(Continuous(f"point {i}", 2) for i in range(self.width // 2))
        move, seen = (ActionComponent("move", MOVES),), (Continuous("own", 2), Continuous("next", 2))
        agents = tuple(Agent(f"agent {i}", move, seen) for i in range(self.agents))
        return Spec("herd", agents, points, self.horizon)

    def initial(self, key: PRNGKeyArray) -> Float[Array, "points 2"]:
        return jax.random.uniform(key, (self.width // 2, 2), minval=-1.0)

    def transition(
        self, key: PRNGKeyArray, world: Float[Array, "points 2"], actions: Int[Array, " N"]
    ) -> Transition:
        push = 0.1 * jnp.array([(0.0, 0.0), (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0)])[actions]
        moved = world.at[self._own].add(push)
        return Transition(moved, -jnp.linalg.norm(moved[self._own], axis=-1).mean(), jnp.bool_(False))

    def observe(self, world: Float[Array, "points 2"]) -> Float[Array, "N 4"]:
        after = (self._own + 1) % (self.width // 2)
        return jnp.concatenate([world[self._own], world[after]], axis=-1)

    def available(self, world: Float[Array, "points 2"]) -> Bool[Array, "N A"]:
        return jnp.ones((self.agents, MOVES), bool)

    def central(self, world: Float[Array, "points 2"]) -> Float[Array, " S"]:
        return world.reshape(-1)

    @property
    def _own(self) -> Int[Array, " N"]:
        return jnp.arange(self.agents) % (self.width // 2)


class Cost(NamedTuple):
    """Of one pass of the fit, or of one update of the team."""

    seconds: float
    megabytes: float


def costs(size: dict[str, int]) -> dict[str, Cost]:
    """Of a problem of this size."""
    env = Herd(size["agents"], size["width"], size["horizon"])
    model = default_model(env.spec)
    once = replace(model.training, max_epochs=1, min_steps_per_epoch=1)
    members = {
        name: replace(model.predictor(name), members=size["members"], training=None)
        for name in ("dynamics", "reward", "observation", "termination")
    }
    plan = ModelPlan(Centralised(), replace(model, training=once, **members), env.spec)
    config = MarcoConfig.preset("default", env.spec, samples=size["samples"])
    check_data_and_model(plan, config, size["seeds"])
    keys = jax.random.split(jax.random.key(0), size["seeds"])
    play = jax.jit(jax.vmap(lambda key: rollouts(key, env, RandomPolicy(), size["samples"] // env.horizon)))
    played = play(keys)
    rows = [
        plan.gather(jax.tree.map(lambda leaf, seed=seed: leaf[seed], played), size["samples"])
        for seed in range(size["seeds"])
    ]
    data = stack_data(rows)
    (fitted, _), seconds = timed(lambda: fit_models(keys, data, plan))
    reserved = sum(memory(_fit_component.lower(keys, data, plan, part)) for part in plan.components())
    learner = QLearner("vdn", episodes_per_update=16, buffer_size=160)
    starts = jax.random.split(jax.random.key(1), (size["seeds"], 1))
    states = init_all(starts, learner, env.spec)
    _, training = timed(lambda: train_all(starts, states, fitted, learner, UPDATES))
    lowered = train_all.lower(starts, states, fitted, learner, UPDATES)
    return {"fit": Cost(seconds, reserved), "update": Cost(training / UPDATES, memory(lowered))}


def timed(work: Any) -> tuple[Any, float]:
    """What it gives, and the seconds of the second time."""
    jax.block_until_ready(work())
    start = time.perf_counter()
    found = jax.block_until_ready(work())
    return found, time.perf_counter() - start


def memory(lowered: Any) -> float:
    """Megabytes of a program: its arguments, its results and what it needs on the way."""
    found = lowered.compile().memory_analysis()
    held = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return float(held) / 1e6


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("quantities", nargs="*", default=list(SIZES), metavar="QUANTITY")
    parser.add_argument("--minutes", type=float, default=5.0, help="per quantity")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    unknown = set(given.quantities) - set(SIZES)
    if unknown:
        parser.error(f"no such quantity: {', '.join(sorted(unknown))}; there are {', '.join(SIZES)}.")
    if len(given.quantities) > 1:  # each in a process of its own: all programs of one are too many for LLVM
        for quantity in given.quantities:
            options = ["--minutes", str(given.minutes)]
            options += [] if given.out == RESULTS else ["--out", str(given.out)]
            subprocess.run([sys.executable, __file__, quantity, *options], check=False)
        return
    machine = jax.devices()[0].platform
    for quantity in given.quantities:
        start = time.perf_counter()
        for value in SIZES[quantity]:
            facts = {"study": f"growth-{quantity}-{machine}", "world": "herd", "size": value}
            if time.perf_counter() - start > 60 * given.minutes:
                break
            try:
                found = costs(BASE | {quantity: value})
            except ValueError as error:  # refused before anything was compiled
                print(f"{quantity} {value}: {error}", flush=True)
                Results(given.out).add(SPEED, [facts | {"side": "fit", "quantity": "refused", "value": 1}])
                break
            print(quantity, value, found, flush=True)
            Results(given.out).add(
                SPEED,
                [
                    facts | {"side": side, "quantity": name, "value": round(number, 6)}
                    for side, cost in found.items()
                    for name, number in cost._asdict().items()
                ],
            )


if __name__ == "__main__":
    main()
