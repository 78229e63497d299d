"""A process with neither the memory and threads of this one nor its main module, and a line to it.

`multiprocessing` would run the caller's script again, which may have no guard against that. Only POSIX
systems can hand a line on like this.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from time import sleep

WATCH = 1.0
"""Seconds between two looks at whether the driver is still there."""


class FreshProcess:
    """Runs `serve(line)` of a module, where `line` is the number of a file to which `line` here leads."""

    def __init__(self, module: str, **variables: str) -> None:
        ours, theirs = socket.socketpair()
        # -P, since the working folder is looked into only for what the user names there. A session of its
        # own, since Ctrl-C is for the driver, which ends its processes when it has no more need of them.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"import {module} as m; m.serve({theirs.fileno()})"],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=_surroundings() | variables,
            start_new_session=True,
        )
        theirs.close()
        self.line = Connection(ours.detach())

    def kill(self) -> None:
        """End the process, and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.line.close()


def end_with_driver() -> None:
    """Called in a fresh process: busy as it may be, it ends when the one that started it does."""
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _surroundings() -> dict[str, str]:
    """Its variables: it finds the same modules, and leaves accelerators alone."""
    path = os.pathsep.join(one for one in sys.path if one)
    return {"JAX_PLATFORMS": "cpu", **os.environ, "PYTHONPATH": path}


def _end_with(driver: int) -> None:
    while os.getppid() == driver:
        sleep(WATCH)
    os.killpg(0, signal.SIGKILL)
