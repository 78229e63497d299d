"""The riddle outside JAX as a simulator with a name: other processes can make it, and it goes wrong there."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from helpers.host_riddle import HostRiddle

NAME = "helpers.simulated:riddle"


class Flawed(HostRiddle):
    """A riddle whose next step, in whatever process, goes wrong for every file in the folder `faults`.

    The name of the file is what happens: kill-0, hang-0, raise-0, nan-0, or always, which stays.
    """

    def __init__(self, horizon, log, sleep, faults):
        super().__init__(horizon, self._flaw, log)
        self.sleep, self.faults, self.shows_nan = sleep, faults, False

    def _flaw(self, total):
        time.sleep(self.sleep)
        for path in sorted(Path(self.faults).iterdir()) if self.faults else ():
            kind = path.name.split("-")[0]
            try:
                if kind != "always":
                    path.unlink()  # by one process alone
            except FileNotFoundError:
                continue
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "hang":
                time.sleep(1e6)
            if kind in ("raise", "always"):
                raise ConnectionError("the robot is gone")
            self.shows_nan = True
            return

    def _shown(self, reward, actions):
        shown = super()._shown(reward, actions)
        if not self.shows_nan:
            return shown
        self.shows_nan = False
        return shown._replace(reward=np.float32(np.nan))


def riddle(horizon=3, log=None, sleep=0.0, faults=None):
    """A simulator of the riddle."""
    return Flawed(horizon, log, sleep, faults)
