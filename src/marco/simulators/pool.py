"""Episodes side by side, each in a simulator of its own; the number of these changes nothing but the time.

The policy acts here, in a thread per episode, one step at a time: so its numbers are those of a single
simulator, and every step can be written down before it is taken.
"""

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from marco.environments.base import Environment, HostWorld, WorldWarning
from marco.environments.user_code import is_noted, noted
from marco.optional import require
from marco.simulators.config import Workers
from marco.simulators.worker import SimulatorLostError, Worker, recipe_of
from marco.types import Spec, TimeStep


def _nothing() -> None:
    pass


class Task(NamedTuple):
    """An episode to be played in any of the simulators."""

    what: str
    """For whoever reads an error: `episode 5`."""
    play: Callable[[HostWorld], Any]
    again: Callable[[], Any] = _nothing
    """Called when the simulator failed, before the episode is played again from its start, in another."""
    over: Callable[[], Any] = _nothing
    """Called when it is over: played, or given up. Not, if the run is interrupted."""


@contextmanager
def opened(env: Environment | HostWorld) -> Iterator[Environment | HostWorld]:
    """The environment; the simulators that were started in the meantime are ended."""
    try:
        yield env
    finally:
        if isinstance(env, Simulators):
            env.close()


class Simulators:
    """A host environment in several processes, made when they are first needed.

    It is a HostWorld itself: asked for a single step it answers from `world`, the one of this process.
    """

    def __init__(self, world: Environment | HostWorld, config: Workers) -> None:
        if isinstance(world, Environment):
            raise ValueError(
                f"{world.spec.name} is compiled, and plays its episodes side by side without workers: leave "
                f"out workers={config.count}. They are for environments outside JAX."
            )
        if config.ray is not None:
            require("ray", "ray")
        self.world, self.config, self._recipe = world, config, recipe_of(world)
        self._idle: list[Worker] = []
        self._busy: set[Any] = set()
        self._lock, self._stopped, self._ray = Lock(), False, None

    def __getattr__(self, name: str) -> Any:
        """What else the environment has: `optimum`, `expert`, `known`."""
        if name.startswith("_") or name == "world":
            raise AttributeError(name)
        return getattr(self.world, name)

    @property
    def spec(self) -> Spec:
        """The shape of the environment."""
        return self.world.spec

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode in this process."""
        return self.world.reset(seed)

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Take one real step in this process."""
        return self.world.step(actions)

    def close(self) -> None:
        """End all processes; they are made anew if they are needed again."""
        with self._lock:
            idle, self._idle = self._idle, []
        if idle:
            with ThreadPoolExecutor(len(idle)) as threads:
                list(threads.map(lambda worker: worker.close(), idle))

    def side_by_side(self, next_task: Callable[[], Task | None]) -> Iterator[Any]:
        """Play as long as there are tasks, and yield what each gave, as it ends.

        `next_task` is asked whenever a simulator is free; None says that there is none before another task
        is over. When one is given up no other is begun, those under way are played to their end, and then
        the error is raised: real steps are not thrown away. The same if nobody wants to hear more.
        """
        self._stopped = False
        self._connect()
        under_way: dict[Future[Any], Task] = {}
        failed: BaseException | None = None
        with ThreadPoolExecutor(self.config.count) as threads:
            try:
                while True:
                    while failed is None and len(under_way) < self.config.count:
                        if (task := next_task()) is None:
                            break
                        under_way[threads.submit(self._played, task)] = task
                    if not under_way:
                        break
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        task, error = under_way.pop(future), future.exception()
                        if _is_ours(error):
                            future.result()
                        task.over()
                        failed = failed or error
                        if error is None:
                            yield future.result()
            except GeneratorExit:
                for future in wait(under_way).done:
                    if not _is_ours(future.exception()):
                        under_way[future].over()
                raise
            except BaseException:
                self._stop()
                raise
        if failed is not None:
            raise failed

    def _connect(self) -> None:
        """Find the Ray cluster, if there is to be one; once, and not in every thread."""
        if self.config.ray is not None:
            from marco.simulators.on_ray import connect

            self._ray = connect(self.config.ray)

    def _played(self, task: Task) -> Any:
        """What a task gives; simulators that fail in it are replaced, until there were too many."""
        attempt = 0
        while True:
            attempt += 1
            try:
                with self._taken() as worker:
                    return task.play(worker)
            except BaseException as error:
                if self._stopped or attempt == self.config.attempts or _is_ours(error):
                    raise
                self._warn(task, error, attempt)
                task.again()

    @contextmanager
    def _taken(self) -> Iterator[Worker]:
        """A simulator that nobody else uses; after an error it is ended."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            with noted(f"{self._recipe.name} in a process of its own"):
                worker = self._start()
        with self._lock:
            self._busy.add(worker)
        try:
            if self._stopped:  # while it was started
                raise SimulatorLostError("the run was stopped.")
            yield worker
        except BaseException:
            with self._lock:
                self._busy.discard(worker)
            worker.close(0.0)
            raise
        with self._lock:
            self._busy.discard(worker)
            self._idle.append(worker)

    def _start(self) -> Worker:
        timeout = self.config.step_timeout
        if self._ray is not None:
            from marco.simulators.on_ray import RayWorker

            return RayWorker(self.spec, self._recipe, timeout, self._ray)
        from marco.simulators.process import ProcessWorker

        return ProcessWorker(self.spec, self._recipe, timeout)

    def _stop(self) -> None:
        """End all processes at once: whoever waits for one gets an error, and plays nothing again."""
        self._stopped = True
        with self._lock:
            workers = [*self._idle, *self._busy]
            self._idle, self._busy = [], set()
        for worker in workers:
            worker.close(0.0)

    def _warn(self, task: Task, error: BaseException, attempt: int) -> None:
        message = str(error).strip().splitlines()
        warnings.warn(
            f"{task.what}: {type(error).__name__}: {message[0] if message else ''} It is played again from "
            f"its start, in another simulator (attempt {attempt + 1} of {self.config.attempts}).",
            WorldWarning,
            stacklevel=2,
        )


def _is_ours(error: BaseException | None) -> bool:
    """Whether it is no error of the environment, but MARCO's or the disk's: no other simulator helps."""
    return error is not None and not is_noted(error)
