"""A real run, killed at random moments: no real step is lost, and what is learned is the same in the end.

Outside JAX a kill may break an episode off, which cannot be played again: it is kept, counted and told, and
the run goes on. Where none broke off, all is the same there too.
"""

import os
import random
import time
from collections import Counter
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
import pytest

from helpers.host_riddle import HostRiddle
from helpers.tiny_run import KNOWN, QUICK, SEEDS, WORLD, begin, work
from marco.algorithm.collect import collect_missing
from marco.data.dataset import Dataset, read_chunk
from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.policies.base import RandomPolicy

PATIENT = "MARCO_CRASH" in os.environ
KILLS = 50 if PATIENT else 1
"""Of each kind of environment. Every process has to trace what it runs, which takes seconds."""

TOUCHES, STEPS = {False: 30, True: 70}, 50
"""About half as often as a run touches a file of its folder, inside and outside JAX; and its real steps."""


class Killed:
    """A run in a folder that is killed, and goes on."""

    def __init__(self, processes, folder, host):
        self.processes, self.folder, self.host = processes, folder, host
        self.log = folder.with_suffix(".log") if host else None
        self.reported, self.kills, self.phase = 0, 0, "start"

    def live(self, seconds=None, **last):
        """Let it go on, until then; whether it was killed."""
        ours, theirs = self.processes.Pipe()
        process = self.processes.Process(
            target=work, args=(self.folder, theirs, self.log), kwargs=last, daemon=True
        )
        process.start()
        theirs.close()
        process.join(seconds)
        process.kill()
        process.join()
        while ours.poll():
            try:
                phase, samples = ours.recv()
            except EOFError:
                break
            self.reported, self.phase = max(self.reported, samples), phase
        assert process.exitcode in (0, -9)
        self.kills += process.exitcode == -9
        return process.exitcode == -9

    def moment(self, luck, number, seconds):
        """When to die: by the clock, at a file or, outside JAX, in a real step."""
        ways = [
            {"last_touch": luck.randint(1, TOUCHES[self.host])},
            {"seconds": luck.uniform(0.0, seconds)},
            {"last_step": luck.randint(1, STEPS // 2)},
        ]
        return ways[-1 - number % 3] if self.host else ways[number % 2]

    @property
    def dataset(self):
        return Dataset(self.folder / "data", WORLD.spec, 1 if self.host else len(SEEDS))

    def check_on_the_way(self):
        """What was told of is there."""
        if self.reported:
            assert self.dataset.samples.min() >= self.reported

    def check_at_the_end(self, whole):
        """All steps that were taken are counted, and all is as in a run in one piece until one broke off."""
        learned, dataset = self.learned, self.dataset
        assert set(dataset.samples) == {STEPS}
        broken = [path for path in self.files if read_chunk(path).lost is not None]
        assert dataset.broken_off.episodes == len(broken) <= self.kills
        for ours, theirs in zip(self.files, whole.files, strict=False):
            if ours in broken:
                one, other = read_chunk(ours).episodes, read_chunk(theirs).episodes
                shown = int(one.mask.sum())
                np.testing.assert_array_equal(one.actions[:, :shown], other.actions[:, :shown])
                np.testing.assert_array_equal(one.state[:, : shown + 1], other.state[:, : shown + 1])
                break
            assert ours.read_bytes() == theirs.read_bytes()
        if self.host:  # the actions of a step are written down first, and then it is taken
            assert STEPS - len(broken) <= self.log.stat().st_size <= STEPS
        if not broken:
            assert len(self.files) == len(whole.files)
            for one, other in zip(learned, whole.learned, strict=True):
                np.testing.assert_array_equal(one, other)
        return len(broken)

    @property
    def files(self):
        return sorted((self.folder / "data").iterdir())

    @cached_property
    def learned(self):
        """All that the run has learned in the end; it goes on to its end here."""
        self.folder.mkdir(exist_ok=True)
        world, seeds = (HostRiddle(log=self.log), SEEDS[:1]) if self.host else (WORLD, SEEDS)
        (*_, (_, state)) = begin(self.folder, QUICK, world, seeds, KNOWN).run()
        return jax.tree.leaves(state)


@pytest.mark.parametrize("host", [False, True], ids=["compiled", "host"])
def test_a_run_killed_at_random_moments_loses_no_real_step_and_ends_with_the_same_team(
    processes, tmp_path, host
):
    whole = Killed(processes, tmp_path / "whole", host)
    assert len(whole.learned)
    luck, phases, seconds = random.Random(host), Counter(), 10.0
    runs = [Killed(processes, tmp_path / "0", host)]
    if PATIENT:  # a process that may live for ever tells how long they do; the one before it has compiled
        runs[0].live()
        runs.append(Killed(processes, tmp_path / "1", host))
        begun = time.perf_counter()
        runs[1].live()
        seconds = time.perf_counter() - begun
    while phases.total() < KILLS:
        if runs[-1].phase == "done":
            runs.append(Killed(processes, tmp_path / str(len(runs)), host))
        if runs[-1].live(**runs[-1].moment(luck, phases.total(), seconds)):
            phases[runs[-1].phase] += 1
        runs[-1].check_on_the_way()
    broken = [run.check_at_the_end(whole) for run in runs]
    print(f"\n{phases.total()} kills in {len(runs)} runs of {seconds:.0f} s; last told of: {dict(phases)};")
    print(f"{sum(broken)} episodes broke off, in {np.count_nonzero(broken)} of the runs")


@pytest.mark.skipif(not PATIENT, reason="minutes: make crash")
def test_memory_and_open_files_stay_as_they_are_over_100_000_steps(tmp_path, monkeypatch):
    """A PettingZoo environment through the collector, in a folder; the data themselves are not counted."""
    from helpers.zoo_toys import Toy

    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)

    class Long(Toy):
        max_cycles = 100

        def observations(self):
            return {agent: 0.1 * seen for agent, seen in super().observations().items()}

    env, total, every = PettingZooWorld(Long(), state="joint"), 100_000, 20_000
    dataset, measured, begun = Dataset(tmp_path, env.spec, 1), [], time.perf_counter()
    while (missing := total - dataset.samples[0]) > 0:
        keys = jax.random.split(jax.random.key(dataset.chunks), 1)
        collect_missing(keys, env, RandomPolicy(), dataset, np.array([missing]), 100)
        if dataset.samples[0] % every == 0:
            data = sum(leaf.nbytes for chunk in dataset._chunks for leaf in chunk.episodes)
            measured.append((_resident() - data, len(os.listdir("/proc/self/fd"))))
    memory, files = np.array(measured).T
    print(
        f"resident MB without the data: {(memory / 1e6).round(1)}, open files: {files}, "
        f"{(time.perf_counter() - begun) / total * 1e6:.0f} microseconds a step"
    )
    assert dataset.samples.tolist() == [total]
    assert len(set(files)) == 1
    assert memory[-1] - memory[0] < 8e6


def _resident():
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
