"""Updates per second of the learners on a fixed piece of work, and where the time goes.

The work is the one for which figures of JaxMARL are known: GRU 64, batches of 32 episodes, replay 5,000, one
update after every 1 or 8 episodes. JaxMARL's learners are scripts outside its package, so they do not run
here: its figures are quoted, from another 2-core machine, and the ratio to them is a hint, not a measurement.
What can be measured in one run is the piece that takes the time: `--parts` times the gradient of IQL's loss
as ours computes it and with the recurrent network that JaxMARL's learners use (Flax's GRU cell in a scan),
on the same batch, taking turns.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from learners import Free, free_team
from marco.data.replay import add, sample
from marco.environments.registry import make
from marco.learners.parallel import init_all, stack_seeds, train_all
from marco.learners.q_learning import QLearner, best_values
from marco.learners.training import TrainingState, init, train
from marco.rollout import rollout
from marco.types import Episode, previous_actions
from record import RESULTS, SPEED, Results

CASES = [
    # world, learner, episodes per update, JaxMARL's updates per second (quoted)
    ("switch", "iql", 1, 368.0),
    ("switch", "qmix", 1, 281.0),
    ("reference", "iql", 1, 134.0),
    ("reference", "qmix", 1, 101.0),
    ("reference", "iql", 8, 109.0),
    ("reference", "qmix", 8, 81.0),
]


def measure(
    world: str, mixer: Any, episodes: int, repeats: int, updates: int, with_parts: bool
) -> dict[str, Any]:
    """Updates per second, one figure per repeat, compilation apart; and the parts of one update."""
    env, learner = make(world), QLearner(mixer, episodes_per_update=episodes)
    state = init(jax.random.key(0), learner, env.spec)
    start = time.perf_counter()
    state, _ = jax.block_until_ready(train(jax.random.key(1), env, learner, state, 40))
    compiling = time.perf_counter() - start
    speeds = []
    for _ in range(repeats):
        before, start = int(state.samples), time.perf_counter()
        state, _ = jax.block_until_ready(train(jax.random.key(1), env, learner, state, updates))
        seconds = time.perf_counter() - start
        speeds.append((updates / seconds, (int(state.samples) - before) / seconds))
    return {
        "updates_per_second": [speed[0] for speed in speeds],
        "samples_per_second": [speed[1] for speed in speeds],
        "compile_seconds": compiling,
        "microseconds": parts(env, learner, state, updates) if with_parts else {},
    }


def parts(env: Any, learner: QLearner, state: TrainingState, loops: int) -> dict[str, float]:
    """Microseconds of playing, of replay, and of the gradient step, each alone in a compiled loop."""
    learned, key = state.learner, jax.random.key(2)
    policy = learner.act(learned, jnp.int32(0))

    def episodes(key: jax.Array) -> Any:
        keys = jax.random.split(key, learner.episodes_per_update)
        return jax.vmap(rollout, (0, None, None), 1)(keys, env, policy)

    batch, new = sample(key, learned.replay, learner.batch_size), jax.jit(episodes)(key)

    def play(index: Any, total: Any) -> Any:
        return total + episodes(jax.random.fold_in(key, index)).reward.sum()

    def replay(index: Any, buffer: Any) -> Any:
        buffer = add(buffer, new)
        drawn = sample(jax.random.fold_in(key, index), buffer, learner.batch_size)
        return buffer._replace(added=buffer.added + (drawn.reward.sum() > 1e9))

    def gradient(index: Any, online: Any) -> Any:
        return _descend(online, jax.grad(learner.loss)(online, learned.target, batch))

    spent = {
        "play": _loop(play, jnp.float32(0.0), loops),
        "replay": _loop(replay, learned.replay, loops),
        "gradient": _loop(gradient, learned.online, loops),
    }
    if learner.mixer == "iql":
        weights, loss = flax_loss(learner, batch)
        pairs = [
            (
                _loop(gradient, learned.online, loops),
                _loop(lambda _, online: _descend(online, jax.grad(loss)(online, weights)), weights, loops),
            )
            for _ in range(5)
        ]
        spent["gradient_flax"] = median(theirs for _, theirs in pairs)
        spent["flax_over_ours"] = median(theirs / ours for ours, theirs in pairs)
    return spent


def flax_loss(learner: QLearner, batch: Episode) -> tuple[Any, Callable[[Any, Any], jax.Array]]:
    """IQL's loss with Flax's GRU cell in a scan: its weights, and the loss of online and target weights."""
    import flax.linen as nn

    actions = batch.available.shape[-1]
    last = jax.nn.one_hot(previous_actions(batch), actions)
    who = jnp.broadcast_to(jnp.eye(last.shape[-2]), (*last.shape[:-1], last.shape[-2]))
    x = jnp.concatenate([batch.observation, last, who], axis=-1)
    scanned = nn.scan(nn.GRUCell, variable_broadcast="params", split_rngs={"params": False})

    class Network(nn.Module):
        """Dense, GRU, dense."""

        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            """A whole episode."""
            x = nn.relu(nn.Dense(learner.hidden)(x))
            empty = jnp.zeros((*x.shape[1:-1], learner.hidden))
            return nn.Dense(actions)(scanned(learner.hidden)(empty, x)[1])

    network = Network()

    def loss(online: Any, target: Any) -> jax.Array:
        q, q_target = network.apply(online, x), network.apply(target, x)
        chosen = jnp.take_along_axis(q[:-1], batch.actions[..., None], axis=-1)[..., 0]
        best = best_values(q, q_target, batch.available)
        error = jnp.where(batch.mask[..., None], chosen - learner.targets(batch, best), 0.0)
        return jnp.mean(jnp.square(error))

    return network.init(jax.random.key(0), x), loss


def free_samples_seconds(world: str, updates: int) -> dict[str, Any]:
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


def _descend(weights: Any, slope: Any) -> Any:
    return jax.tree.map(lambda weight, change: weight - 1e-9 * change, weights, slope)


def _loop(body: Callable[[Any, Any], Any], carry: Any, loops: int) -> float:
    run = jax.jit(lambda carry: jax.lax.fori_loop(0, loops, body, carry))
    jax.block_until_ready(run(carry))
    start = time.perf_counter()
    jax.block_until_ready(run(carry))
    return (time.perf_counter() - start) / loops * 1e6


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--parts", action="store_true", help="also time the parts of an update")
    parser.add_argument("--free-samples", action="store_true", help="also time the free-samples studies")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    table = Table(
        "world",
        "learner",
        "episodes per update",
        "updates/s",
        "JaxMARL (quoted)",
        "play, replay, gradient (us)",
        "gradient, Flax / ours",
    )
    results, console = Results(arguments.out), Console()
    for world, mixer, episodes, quoted in CASES:
        found = measure(world, mixer, episodes, arguments.repeats, arguments.updates, arguments.parts)
        speed = median(found["updates_per_second"])
        spent = found["microseconds"]
        times = ", ".join(f"{spent[part]:.0f}" for part in ("play", "replay", "gradient") if spent)
        ratio = f"{spent['flax_over_ours']:.2f}" if "flax_over_ours" in spent else ""
        table.add_row(world, mixer, str(episodes), f"{speed:.0f}", f"{quoted:.0f}", times, ratio)
        results.add(SPEED, speed_rows(world, mixer, episodes, found | {"quoted": quoted}))
    console.print(table)
    for world in ("switch", "reference") if arguments.free_samples else ():
        found = free_samples_seconds(world, max(1, arguments.updates // 10))
        console.print(
            f"free samples, {world}, one seed: {found['seconds_per_update'] * 1e3:.1f} ms per update of "
            f"{found['restarts']} restarts, {found['estimated_seconds']:.0f} s in all (estimated)"
        )
        facts = {"study": "free-samples-speed", "world": world, "side": "marco", "size": found["restarts"]}
        names = ("seconds_per_update", "estimated_seconds")
        results.add(SPEED, [{**facts, "quantity": name, "value": round(found[name], 4)} for name in names])


def speed_rows(world: str, mixer: str, episodes: int, found: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured of a learner, a row for each figure."""
    facts = {"study": "learner-speed", "world": world, "side": mixer, "size": episodes}
    repeated = [
        {**facts, "quantity": name, "repeat": repeat, "value": round(value, 1)}
        for name in ("updates_per_second", "samples_per_second")
        for repeat, value in enumerate(found[name])
    ]
    once = {"compile_seconds": found["compile_seconds"], "jaxmarl_quoted": found["quoted"]}
    for name, value in found["microseconds"].items():
        once[name if name == "flax_over_ours" else f"{name}_microseconds"] = value
    return repeated + [
        {**facts, "quantity": name, "value": round(value, 4 if name == "flax_over_ours" else 1)}
        for name, value in once.items()
    ]


if __name__ == "__main__":
    main()
