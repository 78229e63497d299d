"""Updates per second of our Q-learners beside JaxMARL's, on one core, the sides taking turns.

    python benchmarks/learner_speed.py --jaxmarl FOLDER [--python PYTHON] [--repeats 3]

The work is the same: GRU 64, batches of 32 episodes, replay 5,000, one update per episode; the clock is the
processor's. JaxMARL's learners are scripts outside its package: FOLDER holds its `baselines/QLearning`
(iql_rnn.py and qmix_rnn.py) as `jaxmarl/`, and `jaxmarl_speed.py`, which times them and prints the updates
per second; PYTHON is one that has what they import. Without --jaxmarl only our side is measured.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import jax
from rich.console import Console
from rich.table import Table

from learners import Free, free_team
from marco.environments.registry import make
from marco.learners.parallel import init_all, stack_seeds, train_all, train_all_on_one_core
from marco.learners.q_learning import QLearner
from record import RESULTS, SPEED, Results

CASES = (
    # our world, JaxMARL's, its timesteps, learner, updates
    ("reference", "MPE_simple_reference_v3", 26, "iql", 400),
    ("reference", "MPE_simple_reference_v3", 26, "qmix", 400),
    ("switch", "switch_riddle", 7, "iql", 1_000),
    ("switch", "switch_riddle", 7, "qmix", 1_000),
)
PIN = ("taskset", "-c", "0")


def our_speed(world: str, mixer: str, updates: int) -> float:
    """Updates per second of the processor's time, the median of three, compilation apart."""
    env, learner = make(world), QLearner(mixer)  # type: ignore[arg-type]
    keys, envs = jax.random.split(jax.random.key(0), (1, 1)), stack_seeds([env])
    states = init_all(keys, learner, env.spec)
    states, _ = jax.block_until_ready(train_all_on_one_core(keys, states, envs, learner, 64))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        states, _ = jax.block_until_ready(train_all_on_one_core(keys, states, envs, learner, updates))
        seconds.append(time.process_time() - start)
    return updates / median(seconds)


def ours(world: str, mixer: str, updates: int) -> float:
    """`our_speed` in a process of its own that keeps to one core."""
    return _printed([sys.executable, __file__, "--one", world, mixer, str(updates)])


def theirs(folder: Path, python: str, world: str, timesteps: int, learner: str, updates: int) -> float:
    """JaxMARL's updates per second, likewise."""
    script = [python, str(folder / "jaxmarl_speed.py"), str(folder / "jaxmarl")]
    return _printed([*script, learner, world, str(timesteps), str(updates)])


def _printed(command: list[str]) -> float:
    """The speed in the line `SPEED ... NUMBER updates/s`."""
    done = subprocess.run([*PIN, *command], capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("SPEED")]
    if not lines:
        raise RuntimeError(
            f"{' '.join(command)} printed no speed:\n{done.stdout[-500:]}{done.stderr[-2000:]}"
        )
    return float(lines[-1][lines[-1].index("updates/s") - 1])


def free_samples_seconds(world: str, updates: int) -> dict[str, float]:
    """Seconds of a free-samples study for one seed, estimated from a few timed updates."""
    env = make(world)
    learner, restarts = free_team(env.spec)
    keys = jax.random.split(jax.random.key(0), (1, restarts))
    state, envs = init_all(keys, learner, env.spec), stack_seeds([env])
    for count in (1, updates):  # the first compiles
        start = time.perf_counter()
        state, _ = jax.block_until_ready(train_all(keys, state, envs, learner, count))
    each = (time.perf_counter() - start) / updates
    return {"restarts": restarts, "seconds_per_update": each, "estimated_seconds": each * Free(world).updates}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jaxmarl", type=Path, metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable, help="runs JaxMARL's scripts")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--updates", type=int, help="per measurement, instead of 400 and 1,000")
    parser.add_argument("--free-samples", action="store_true", help="also time the free-samples studies")
    parser.add_argument("--one", nargs=3, metavar=("WORLD", "LEARNER", "UPDATES"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.one:
        world, mixer, updates = given.one
        print(f"SPEED marco {mixer} {world} {our_speed(world, mixer, int(updates)):.1f} updates/s")
        return
    table, console = Table("world", "learner", "MARCO", "JaxMARL", "ratio"), Console()
    for world, world_there, timesteps, learner, usual in CASES:
        updates, sides = given.updates or usual, {"marco": [], "jaxmarl": []}  # type: ignore[var-annotated]
        for _ in range(given.repeats):
            sides["marco"].append(ours(world, learner, updates))
            if given.jaxmarl:
                there = theirs(given.jaxmarl, given.python, world_there, timesteps, learner, updates)
                sides["jaxmarl"].append(there)
        facts = {"study": "learner-speed", "world": world, "quantity": f"{learner} updates per second"}
        rows = [
            {**facts, "side": side, "repeat": repeat, "value": round(value, 1)}
            for side, values in sides.items()
            for repeat, value in enumerate(values)
        ]
        if given.jaxmarl:  # one side alone is not to stand in the place of both
            Results(given.out).add(SPEED, rows)
        speeds = [f"{median(values):.0f}" if values else "" for values in sides.values()]
        ratios = [a / b for a, b in zip(sides["marco"], sides["jaxmarl"], strict=False)]
        table.add_row(world, learner, *speeds, f"{median(ratios):.2f}" if ratios else "")
    console.print(table)
    for world in ("switch", "reference") if given.free_samples else ():
        found = free_samples_seconds(world, max(1, (given.updates or 300) // 10))
        console.print(
            f"free samples, {world}, one seed: {found['seconds_per_update'] * 1e3:.1f} ms per update of "
            f"{found['restarts']} restarts, {found['estimated_seconds']:.0f} s in all (estimated)"
        )
        facts = {"study": "free-samples-speed", "world": world, "side": "marco", "size": found["restarts"]}
        names = ("seconds_per_update", "estimated_seconds")
        Results(given.out).add(
            SPEED, [{**facts, "quantity": name, "value": round(found[name], 4)} for name in names]
        )


if __name__ == "__main__":
    main()
