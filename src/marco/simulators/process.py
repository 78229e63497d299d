"""A simulator in a process of this machine, asked over a pair of sockets."""

import signal
import subprocess
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from jaxtyping import Int

from marco.jobs.fresh import FreshProcess, end_with_driver
from marco.simulators.worker import (
    PATIENCE,
    START,
    Recipe,
    Simulator,
    SimulatorLostError,
    check_same,
    unpacked,
)
from marco.types import Spec, TimeStep


class ProcessWorker:
    """A `Worker` that is a fresh process: it has neither the driver's memory nor its threads."""

    def __init__(self, spec: Spec, recipe: Recipe, step_timeout: float | None) -> None:
        self.spec, self._timeout = spec, step_timeout
        self._fresh = FreshProcess("marco.simulators.process")
        self._process, self._line = self._fresh.process, self._fresh.line
        self._hangs = False
        try:
            self._ask(("make", recipe))
            check_same(spec, self._answer(START), recipe.name)
        except BaseException:
            self.close(0.0)
            raise

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode."""
        self._ask(("reset", seed))
        return self._answer(self._timeout)

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Take one real step."""
        self._ask(("step", actions))
        return self._answer(self._timeout)

    def close(self, patience: float = PATIENCE) -> None:
        """End the process, and all that it has started."""
        if not self._hangs and patience:
            with suppress(OSError):
                self._ask(None)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        self._fresh.kill()

    def _ask(self, question: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the answer, or none, tells what happened
            self._line.send(question)

    def _answer(self, timeout: float | None) -> Any:
        try:
            if not self._line.poll(timeout):
                self._hangs = True
                raise SimulatorLostError(
                    f"the simulator of {self.spec.name} did not answer within {timeout:g} seconds. Where a "
                    "step may take longer, give a larger step_timeout."
                )
            answer = self._line.recv_bytes()
        except (EOFError, ConnectionError):
            raise SimulatorLostError(f"the process of {self.spec.name} {self._end()}.") from None
        return unpacked(answer)

    def _end(self) -> str:
        """How the process ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        code = self._process.returncode
        if code is None:
            return "closed its line"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with the status {code}"


def serve(line: int) -> None:
    """The life of a simulator's process: answer what is asked, and end with the driver."""
    end_with_driver()
    driver, simulator = Connection(line), Simulator()
    with suppress(EOFError, ConnectionError):
        while (question := driver.recv()) is not None:
            driver.send_bytes(simulator.ask(*question))
    simulator.close()
