"""A real run, killed at random moments: no sample is lost, and what is learned is the same in the end."""

import multiprocessing
import os
import random
import sys

import jax
import numpy as np
import pytest

from helpers.tiny_run import KNOWN, QUICK, SEEDS, WORLD, begin, work
from marco.data.dataset import Dataset

KILLS = 20 if "MARCO_CRASH" in os.environ else 2
"""Every process has to trace what it runs, which takes seconds: `make crash` is patient."""

SECONDS, TOUCHES = 10.0, 60
"""About how long a run takes, and how often it opens or renames a file of its folder."""


@pytest.fixture
def processes(monkeypatch):
    """Processes that begin with everything imported and nothing of JAX started."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the server looks nowhere else
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["helpers.tiny_run"])
    return context


class Killed:
    """A run in a folder that is killed, and goes on."""

    def __init__(self, processes, folder):
        self.processes, self.folder, self.reported, self.done = processes, folder, 0, False

    def live(self, seconds=None, last_touch=None):
        """Let it go on, until then; whether it was killed."""
        ours, theirs = self.processes.Pipe()
        process = self.processes.Process(target=work, args=(self.folder, theirs, last_touch))
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
            self.reported, self.done = max(self.reported, samples), phase == "done"
        assert process.exitcode in (0, -9)
        return process.exitcode == -9

    def lost(self):
        """Samples that were told of and are not there."""
        if not self.reported:
            return 0
        return max(0, self.reported - Dataset(self.folder / "data", WORLD.spec, len(SEEDS)).samples.min())


def test_a_run_killed_at_random_moments_loses_no_sample_and_ends_with_the_same_team(processes, tmp_path):
    """Every other SIGKILL comes by the clock, the rest as the run opens or renames a file."""
    (tmp_path / "whole").mkdir()
    whole = _learned(tmp_path / "whole")
    luck, runs, kills = random.Random(0), [Killed(processes, tmp_path / "0")], 0
    while kills < KILLS:
        if runs[-1].done:
            runs.append(Killed(processes, tmp_path / str(len(runs))))
        by_clock = {"seconds": luck.uniform(0.0, SECONDS)}
        kills += runs[-1].live(**(by_clock if kills % 2 else {"last_touch": luck.randint(1, TOUCHES)}))
        assert runs[-1].lost() == 0
    for run in runs:
        for one, other in zip(whole, _learned(run.folder), strict=True):
            np.testing.assert_array_equal(one, other)


def _learned(folder):
    """All that a run has learned in the end; it goes on to its end here."""
    (*_, (_, state)) = begin(folder, QUICK, known=KNOWN).run()
    return jax.tree.leaves(state)
