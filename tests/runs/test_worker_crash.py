"""Simulators and drivers killed at random moments: the same data, the same team, and every step counted."""

import os
import random
import signal
import time
from collections import Counter
from functools import cached_property
from pathlib import Path

import jax
import numpy as np

from helpers.tiny_run import KNOWN, SEEDS, WORLD, Drifter, begin, settings, simulated, work_side_by_side
from marco.data.dataset import BrokenOff, Dataset
from marco.simulators.config import Workers

PATIENT = "MARCO_CRASH" in os.environ
WORKER_KILLS, DRIVER_KILLS = (50, 20) if PATIENT else (2, 1)
STEPS, SLEEP = (150, 0.1) if PATIENT else (50, 0.05)
PLAN = settings(team=Drifter(), explorer=Drifter(), samples=STEPS, first_chunk=STEPS // 2, chunk=STEPS // 4)
WORKERS = Workers(3, step_timeout=5.0, attempts=1_000)
"""Whoever kills at random may hit an episode many times."""


class Struck:
    """A run whose simulators and whose driver are killed, and which goes on."""

    def __init__(self, processes, folder):
        self.processes, self.folder, self.phase, self.told = processes, folder, "start", 0
        self.log, self.faults = folder.with_suffix(".log"), folder.with_suffix(".faults")
        self.faults.mkdir()

    def live(self, luck, strikes, seconds=None, last_touch=None):
        """Let the driver live until then, and kill some of its simulators while it collects.

        What was done: how many simulators were killed, and whether the driver was.
        """
        ours, theirs = self.processes.Pipe()
        arguments = (self.folder, theirs, PLAN, self.log, self.faults, WORKERS, SLEEP, last_touch)
        driver = self.processes.Process(target=work_side_by_side, args=arguments, daemon=True)
        driver.start()
        theirs.close()
        struck, ends = 0, time.monotonic() + (seconds or 1e6)
        while driver.is_alive() and time.monotonic() < ends:
            self._listen(ours)
            driver.join(luck.uniform(0.0, 1.0))
            if self.phase == "collect" and struck < strikes and (simulators := children(driver.pid)):
                struck += strike(luck.choice(simulators))
        driver.kill()
        driver.join()
        self._listen(ours)
        assert driver.exitcode in (0, -signal.SIGKILL)
        if self.told:
            assert self.dataset.samples.min() >= self.told  # what was told of is there
        return struck, driver.exitcode != 0

    def _listen(self, line):
        try:
            while line.poll():
                self.phase, samples = line.recv()
                self.told = max(self.told, samples)
        except EOFError:
            pass

    @property
    def dataset(self):
        return Dataset(self.folder / "data", WORLD.spec, 1)

    @cached_property
    def learned(self):
        """All that the run has learned in the end; it goes on to its end here."""
        self.folder.mkdir(exist_ok=True)
        env = simulated(self.log)
        (*_, (_, state)) = begin(self.folder, PLAN, env, SEEDS[:1], KNOWN).run()
        return jax.tree.leaves(state)

    @property
    def chunks(self):
        return {path.name: path.read_bytes() for path in sorted((self.folder / "data").glob("chunk-*"))}

    def check(self, whole):
        """As a run in one piece, in one process; and how much was played again."""
        assert self.phase == "done"
        assert self.chunks == whole.chunks
        for one, other in zip(self.learned, whole.learned, strict=True):
            np.testing.assert_array_equal(one, other)
        dataset = self.dataset
        assert (dataset.samples.tolist(), dataset.broken_off) == ([STEPS], BrokenOff(0, 0))
        # The actions of a step are written down first, and then it is taken: a kill may come between.
        taken, counted = self.log.stat().st_size, STEPS + dataset.played_again.steps
        assert counted - dataset.played_again.episodes <= taken <= counted
        assert not list((self.folder / "data").glob("open-*"))
        return dataset.played_again


def children(pid):
    """The processes that a process has started."""
    try:
        return [
            int(one)
            for path in Path(f"/proc/{pid}/task").glob("*/children")
            for one in path.read_text().split()
        ]
    except OSError:
        return []


def strike(pid):
    """Kill a process; whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_killed_simulators_and_drivers_change_neither_the_data_nor_the_team(processes, tmp_path):
    whole = Struck(processes, tmp_path / "whole")
    assert len(whole.learned)
    luck, done = random.Random(0), Counter()
    runs = [Struck(processes, tmp_path / "0")]
    (runs[0].faults / "hang-0").touch()
    (runs[0].faults / "nan-0").touch()
    while done["simulators"] < WORKER_KILLS or done["drivers"] < DRIVER_KILLS or runs[-1].phase != "done":
        if runs[-1].phase == "done":
            runs.append(Struck(processes, tmp_path / str(len(runs))))
        wanted = WORKER_KILLS - done["simulators"]
        moment = {}
        if done["drivers"] < DRIVER_KILLS:
            ways = ({"seconds": luck.uniform(2.0, 20.0)}, {"last_touch": luck.randint(10, STEPS)})
            moment = ways[done["drivers"] % 2] if PATIENT else ways[1]
        struck, killed = runs[-1].live(luck, wanted, **moment)
        done.update(simulators=struck, drivers=killed)
    again = [run.check(whole) for run in runs]
    assert not list(runs[0].faults.iterdir())
    print(
        f"\n{done['simulators']} simulators and {done['drivers']} drivers killed in {len(runs)} runs; "
        f"{sum(one.episodes for one in again)} episodes played again, {sum(one.steps for one in again)} steps"
    )
