"""A tiny run of MARCO, shared by tests, and by the processes that the crash test kills."""

import os
import signal
import sys
import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from helpers.host_riddle import HostRiddle
from helpers.simulated import NAME
from marco.algorithm.config import MarcoConfig
from marco.algorithm.loop import Marco
from marco.data.dataset import Dataset
from marco.data.offline import LoggedEpisode
from marco.environments.base import WorldWarning
from marco.environments.registry import make
from marco.environments.switch import NONE, TELL, Switch
from marco.learners.q_learning import QLearner
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import rollouts
from marco.runs.checkpoint import RunJournal, alone
from marco.simulators.pool import Simulators, opened

WORLD = Switch(agents=2, horizon=3)
ONE = PredictorConfig("factored", (8,), 1)
TWO = PredictorConfig("chain", (8,), 2)
MODEL = ModelConfig(TWO, ONE, ONE, ONE, ONE, FitConfig(max_epochs=3, min_steps_per_epoch=5, batch_size=16))
TINY = QLearner(
    "vdn", hidden=8, episodes_per_update=4, batch_size=4, buffer_size=16, epsilon_anneal_steps=100
)
SEEDS = (3, 4)


def settings(**changes):
    first = min(20, changes.get("samples", 50))
    plan = {"samples": 50, "first_chunk": first, "chunk": 16, "explorer_steps": 20, "final_updates": 3}
    plan |= {"demonstrations": 0.5, "candidates": (changes.get("team", TINY),)}
    return MarcoConfig(**({"team": TINY, "explorer": TINY, "model": MODEL} | plan | changes))


def begin(folder, plan, world=WORLD, seeds=SEEDS, known=()):
    dataset = Dataset(folder / "data", world.spec, len(seeds))
    return Marco(world, plan, seeds, dataset, known, journal=RunJournal(folder))


def phases(run):
    """The ends of a run's phases, with what had been learned by then."""
    return ((event, state) for event, state in run.run() if event.over)


def logged_episodes(steps):
    """Real episodes of the tiny riddle, of so many steps in all."""
    played, found = rollouts(jax.random.key(9), WORLD, RandomPolicy(), steps), []
    while steps:
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[:, len(found)], played)
        length = min(steps, int(one.mask.sum()))
        shown = (leaf[: length + 1] for leaf in (one.observation, one.state, one.available))
        observation, state, available = shown
        ended = bool(one.terminated[:length].any())
        found.append(
            LoggedEpisode(observation, state, one.actions[:length], one.reward[:length], ended, available)
        )
        steps -= length
    return found


def _told(s, a, following):
    return jnp.any(a == TELL)


def _verdict(s, a, following):
    return jnp.where(_told(s, a, following), jnp.where(s[3:].all(), 1.0, -1.0), 0.0)


def _sight(key, s, previous):
    return jnp.stack([s[:2], s[:2] * s[2]], axis=-1)


def _masks(s):
    return (s[:2, None] > 0.5) | (jnp.arange(4) == NONE)


KNOWN = (("reward", _verdict), ("termination", _told), ("observation", _sight), ("available", _masks))
"""All of the tiny riddle but its dynamics: most of the time of a test is the compilation of components."""


class Leaning(Policy):
    """Leans towards some actions, whatever is seen."""

    weights: Array

    def start(self):
        return ()

    def __call__(self, memory, timestep):
        return memory, jax.nn.softmax(jnp.where(timestep.available, self.weights, -1e9))


@dataclass(frozen=True)
class Drifter:
    """The quickest learner to trace: it drifts, by chance and by what it is paid."""

    episodes_per_update: int = 4

    def init(self, key, spec):
        return jax.random.normal(key, (spec.num_agents, spec.num_actions))

    def act(self, state, samples):
        return Leaning(state)

    def greedy(self, state):
        return Leaning(state)

    def update(self, key, state, episodes):
        paid = episodes.undiscounted_return.mean()
        return state + jax.random.normal(key, state.shape) * (1.0 + paid), {"loss": -paid}

    def clear_replay(self, state, spec):
        return state


QUICK = settings(team=Drifter(), explorer=Drifter())


def work(folder, told, log=None, last_touch=None, last_step=None):
    """A run in a process of its own, which tells its phases; it may kill itself at a file or in a real step.

    With a `log` of all steps it is in the riddle outside JAX.
    """
    # A process that is to be killed has no time to compile what another has compiled.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    folder.mkdir(exist_ok=True)
    if last_touch is not None:
        _die_at_touch(str(folder), last_touch)
    world, seeds = WORLD, SEEDS
    if log is not None:
        world, seeds = HostRiddle(before=lambda total: _die(total == last_step), log=log), SEEDS[:1]
    with alone(folder):
        for event, _ in begin(folder, QUICK, world, seeds, KNOWN).run():
            told.send((event.phase, event.samples))


def simulated(log, faults=None, workers=None, sleep=0.0):
    """The riddle outside JAX by simulators side by side, or in this process with none."""
    env = make(NAME, log=str(log), sleep=sleep, faults=None if faults is None else str(faults))
    return env if workers is None else Simulators(env, workers)


def work_side_by_side(folder, told, plan, log, faults, workers, sleep, last_touch=None):
    """A run by simulators in a process of its own, which tells its phases; it may kill itself at a file."""
    warnings.simplefilter("ignore", WorldWarning)  # a line for every simulator that is lost
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    folder.mkdir(exist_ok=True)
    if last_touch is not None:
        _die_at_touch(str(folder), last_touch)
    with alone(folder), opened(simulated(log, faults, workers, sleep)) as world:
        for event, _ in begin(folder, plan, world, SEEDS[:1], KNOWN).run():
            told.send((event.phase, event.samples))


def _die(now):
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def _die_at_touch(folder, last):
    """SIGKILL this process as it opens, renames or removes a file of the folder for the `last`-th time."""
    touched = 0

    def look(event, arguments):
        nonlocal touched
        if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(folder):
            touched += 1
            _die(touched == last)

    sys.addaudithook(look)
