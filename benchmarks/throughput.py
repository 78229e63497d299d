"""Environment steps per second: our environments, JaxMARL's and mpe2's, in one run on one machine.

Every side does the same work: a compiled loop of random actions in many copies at once. A finished episode is
replaced at once by a fresh one, and every reward and observation is added up, so that the compiler cannot
remove any of them. The sides take turns, so that other load on the machine affects both.

    python benchmarks/throughput.py [--repeats 5] [--sizes 1 64 1024 16384] [--out FOLDER]
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from rich.console import Console
from rich.table import Table

from marco.environments.base import Environment, EnvironmentState
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.policies.base import RandomPolicy
from marco.sampling import draw
from marco.types import TimeStep
from record import RESULTS, SPEED, Results

Totals = Float[Array, " 2"]
"""The sum of all rewards and of all observations."""

PAIRS: tuple[tuple[str, Environment, str], ...] = (
    ("switch", Switch(), "switch_riddle"),
    ("reference", Reference(), "MPE_simple_reference_v3"),
)
ALL_STEPS, MOST_STEPS, MPE2_STEPS = 500_000, 20_000, 2_000
"""Steps of one timed run: of all copies together, at most in one loop, and of mpe2."""


@dataclass(frozen=True)
class Row:
    """Steps per second of each repeat, for one number of copies; theirs is empty if missing."""

    world: str
    copies: int
    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """Ours over theirs, within each repeat."""
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)] if self.theirs else []

    @property
    def sides(self) -> dict[str, list[float]]:
        """By name."""
        return {"marco": self.ours, "jaxmarl": self.theirs}


# --- Our side ----------------------------------------------------------------------------------------------


def restart_if_over(
    key: PRNGKeyArray, env: Environment, state: EnvironmentState, timestep: TimeStep
) -> tuple[EnvironmentState, TimeStep]:
    """Replace a finished episode by a fresh one, as JaxMARL's `step` does inside."""
    fresh = env.reset(key)
    restarted: tuple[EnvironmentState, TimeStep] = jax.tree.map(
        lambda new, old: jnp.where(timestep.last, new, old), fresh, (state, timestep)
    )
    return restarted


@partial(jax.jit, static_argnames=("copies", "loop"))
def play_ours(key: PRNGKeyArray, env: Environment, copies: int, loop: int) -> Totals:
    """Random play among the available actions."""

    def one_copy(key: PRNGKeyArray, state: EnvironmentState, timestep: TimeStep) -> Any:
        key_act, key_step, key_reset = jax.random.split(key, 3)
        _, probabilities = RandomPolicy()((), timestep)
        state, timestep = env.step(key_step, state, draw(key_act, probabilities))
        return restart_if_over(key_reset, env, state, timestep), timestep.reward

    def all_copies(carry: Any, key: PRNGKeyArray) -> Any:
        (state, timestep), totals = carry
        after, reward = jax.vmap(one_copy)(jax.random.split(key, copies), state, timestep)
        return (after, totals + jnp.stack([reward.sum(), after[1].observation.sum()])), None

    key_reset, key_play = jax.random.split(key)
    begun = jax.vmap(env.reset)(jax.random.split(key_reset, copies))
    keys = jax.random.split(key_play, loop)
    return jax.lax.scan(all_copies, (begun, jnp.zeros(2)), keys)[0][1]


# --- Their side --------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("env", "copies", "loop"))
def play_jaxmarl(key: PRNGKeyArray, env: Any, copies: int, loop: int) -> Totals:
    """Random play by `action_space(agent).sample`, as JaxMARL's documentation has it; `step` restarts."""

    def one_copy(key: PRNGKeyArray, state: Any) -> Any:
        key_act, key_step = jax.random.split(key)
        keys = jax.random.split(key_act, env.num_agents)
        actions = {name: env.action_space(name).sample(keys[i]) for i, name in enumerate(env.agents)}
        seen, state, rewards, _, _ = env.step(key_step, state, actions)
        # Ours is the mean over agents, too.
        return seen, state, jnp.stack(list(rewards.values())).mean()

    def all_copies(carry: Any, key: PRNGKeyArray) -> Any:
        state, totals = carry
        seen, state, reward = jax.vmap(one_copy)(jax.random.split(key, copies), state)
        observations = jnp.stack([seen[name] for name in env.agents]).sum()
        return (state, totals + jnp.stack([reward.sum(), observations])), None

    key_reset, key_play = jax.random.split(key)
    _, state = jax.vmap(env.reset)(jax.random.split(key_reset, copies))
    keys = jax.random.split(key_play, loop)
    return jax.lax.scan(all_copies, (state, jnp.zeros(2)), keys)[0][1]


def mpe2_speed() -> float:
    """Steps per second of mpe2's simple reference, one world in Python."""
    from mpe2 import simple_reference_v3

    world, rng = simple_reference_v3.parallel_env(), np.random.default_rng(0)
    actions = rng.integers(50, size=(MPE2_STEPS, 2)).tolist()
    world.reset(seed=0)
    begin = time.perf_counter()
    for first, second in actions:
        world.step({"agent_0": first, "agent_1": second})
        if not world.agents:
            world.reset()
    return MPE2_STEPS / (time.perf_counter() - begin)


# --- Measuring ---------------------------------------------------------------------------------------------


def measure(world: str, env: Environment, other: str, copies: int, repeats: int) -> Row:
    """Time both sides in turns, after a run of each that compiles."""
    loop = min(MOST_STEPS, max(1, ALL_STEPS // copies))
    sides: list[Callable[[PRNGKeyArray], Totals]] = [
        lambda key: play_ours(key, env, copies=copies, loop=loop)
    ]
    if find_spec("jaxmarl"):
        import jaxmarl

        theirs = jaxmarl.make(other)
        sides.append(lambda key: play_jaxmarl(key, theirs, copies=copies, loop=loop))
    for side in sides:
        jax.block_until_ready(side(jax.random.key(0)))
    speeds: list[list[float]] = [[] for _ in sides]
    for repeat in range(repeats):
        for side, speed in zip(sides, speeds, strict=True):
            key = jax.random.key(repeat)
            begin = time.perf_counter()
            jax.block_until_ready(side(key))
            speed.append(copies * loop / (time.perf_counter() - begin))
    return Row(world, copies, speeds[0], speeds[1] if len(speeds) > 1 else [])


# --- Reporting ---------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> Table:
    """Medians over the repeats, and the ratio's median with its smallest and largest value."""
    out = Table(title="environment steps per second (median)")
    for heading in ("world", "copies", "ours", "JaxMARL", "ours / JaxMARL (min to max)"):
        out.add_column(heading, justify="left" if heading == "world" else "right")
    for row in rows:
        theirs, ratio = "left out", "-"
        if row.theirs:
            theirs = f"{median(row.theirs):,.0f}"
            ratio = f"{median(row.ratios):.2f} ({min(row.ratios):.2f} to {max(row.ratios):.2f})"
        out.add_row(row.world, f"{row.copies:,}", f"{median(row.ours):,.0f}", theirs, ratio)
    return out


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 64, 1024, 16384])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    console = Console()
    for module in ("jaxmarl", "mpe2"):
        if not find_spec(module):
            console.print(f"{module} is not installed: its side is left out.")
    rows = [
        measure(world, env, other, copies, arguments.repeats)
        for world, env, other in PAIRS
        for copies in arguments.sizes
    ]
    console.print(table(rows))
    python = [mpe2_speed() for _ in range(arguments.repeats)] if find_spec("mpe2") else []
    if python:
        console.print(f"mpe2 (Python, one world of reference): {median(python):,.0f} steps per second.")
    measured = [
        *((row.world, side, row.copies, speeds) for row in rows for side, speeds in row.sides.items()),
        ("reference", "mpe2", 1, python),
    ]
    Results(arguments.out).add(SPEED, [row for one in measured for row in speed_rows(*one)])
    console.print(f"written to {arguments.out}")


def speed_rows(world: str, side: str, copies: int, speeds: list[float]) -> list[dict[str, Any]]:
    """A row for each repeat: steps of one environment (all agents act) per second."""
    facts = {"study": "throughput", "world": world, "side": side, "quantity": "steps_per_second"}
    return [facts | {"size": copies, "repeat": i, "value": round(speed)} for i, speed in enumerate(speeds)]


if __name__ == "__main__":
    main()
