"""Simulators side by side: the time of collection with 1 to 8 workers, and what a step costs the driver.

A simulator sleeps 20 ms a step; 2,000 samples are collected by the team of the default preset, untrained.
Processes are started first, and that is timed apart. The files of all runs of a kind must be the same, byte
by byte. `driver_us` is the driver's processor time per step, all threads together, in microseconds.

    python benchmarks/simulators.py [--workers 1 2 4 8] [--ray 8] [--samples 2000] [--out FOLDER]
"""

import argparse
import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from marco.algorithm.collect import collect_side_by_side, collectors
from marco.algorithm.config import MarcoConfig
from marco.data.dataset import Dataset
from marco.environments.base import HostWorld
from marco.environments.registry import make
from marco.learners.training import init
from marco.policies.base import Policy
from marco.simulators.config import Workers
from marco.simulators.pool import Simulators, Task, opened
from record import RESULTS, SPEED, Results

SECONDS = 0.02
ENDS = {"whole episodes": 0.0, "early ends": 0.05}
"""Episodes of 20 steps; and such as end by themselves with this probability at every step."""


class Row(NamedTuple):
    """One collection."""

    kind: str
    where: str
    workers: int
    start: float
    seconds: float
    driver_us: float
    files: str
    """A digest of the dataset."""


def measure(kind: str, workers: Workers, samples: int, seconds: float = SECONDS) -> Row:
    """Collect, and time it."""
    env = make(f"{Path(__file__).parent / 'sleeper.py'}:Sleeper", seconds=seconds, ends=ENDS[kind])
    folder = Path(tempfile.mkdtemp())
    dataset, policies = Dataset(folder, env.spec, 1), _policies(env)
    try:
        with opened(Simulators(env, workers)) as simulators:
            begun = time.perf_counter()
            _start_all(simulators)
            start = time.perf_counter() - begun
            begun, busy = time.perf_counter(), time.process_time()
            for _ in collect_side_by_side(jax.random.key, simulators, policies, dataset, samples):
                pass
            taken, busy = time.perf_counter() - begun, time.process_time() - busy
        assert dataset.samples.tolist() == [samples]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.iterdir())))
    finally:
        shutil.rmtree(folder)
    where = "processes" if workers.ray is None else "ray"
    return Row(kind, where, workers.count, start, taken, busy / samples * 1e6, digest.hexdigest())


def _policies(env: HostWorld) -> Policy:
    """A team of the default preset that has learned nothing, for one seed."""
    config = MarcoConfig.preset("default", env.spec)
    team = jax.tree.map(lambda leaf: leaf[None], init(jax.random.key(0), config.team, env.spec))
    return collectors("team", config, env.spec, team, team)


def _start_all(simulators: Simulators) -> None:
    """Have every process make its simulator, and the policy compiled."""
    count = simulators.config.count
    together = Barrier(count)
    tasks = iter([Task("a start", lambda simulator: together.wait())] * count)
    for _ in simulators.side_by_side(lambda: next(tasks, None)):
        pass
    nowhere = Dataset(None, simulators.spec, 1)
    for _ in collect_side_by_side(jax.random.key, simulators, _policies(simulators), nowhere, 2):
        pass


def table(rows: list[Row]) -> Table:
    """What was measured, with the speed over one worker of the same kind."""
    out = Table(title="seconds of collection")
    for heading in ("episodes", "where", "workers", "to start", "collection", "speed-up", "driver us/step"):
        out.add_column(heading, justify="left" if heading in ("episodes", "where") else "right")
    alone = {row.kind: row.seconds for row in rows if row.workers == 1 and row.where == "processes"}
    for row in rows:
        faster = f"{alone[row.kind] / row.seconds:.2f}" if row.kind in alone else "-"
        numbers = (f"{row.start:.1f}", f"{row.seconds:.2f}", faster, f"{row.driver_us:.0f}")
        out.add_row(row.kind, row.where, str(row.workers), *numbers)
    return out


def main() -> None:
    """Measure, check, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--ray", type=int, nargs="*", default=[8])
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    console, results, rows = Console(), Results(arguments.out), []
    chosen = [Workers(count) for count in arguments.workers]
    chosen += [Workers(count, ray="local") for count in arguments.ray]
    for kind in ENDS:
        for workers in chosen:
            row = measure(kind, workers, arguments.samples)
            rows.append(row)
            same = {other.files for other in rows if other.kind == kind}
            if len(same) > 1:
                raise SystemExit(f"{row} has another dataset than the runs before it")
            results.add(SPEED, _as_rows(row))
            console.print(row)
    quick = measure("whole episodes", Workers(1), arguments.samples, seconds=0.0)
    results.add(SPEED, _as_rows(quick._replace(kind="no sleep")))
    console.print(table([*rows, quick._replace(kind="no sleep")]))


def _as_rows(row: Row) -> list[dict[str, object]]:
    quantities = {"start": row.start, "seconds": row.seconds, "driver_us": row.driver_us}
    key = {"study": "simulators", "world": row.kind, "side": row.where, "size": row.workers, "repeat": 0}
    return [{**key, "quantity": name, "value": value} for name, value in quantities.items()]


if __name__ == "__main__":
    main()
