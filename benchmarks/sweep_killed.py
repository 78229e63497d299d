"""A sweep of 24 small runs of MARCO on two cores under Ray, killed in the middle and continued.

    python benchmarks/sweep_killed.py [--out FOLDER] [--plain]

It shows that the table is complete, that finished runs are not touched again, that runs that were under way
are resumed with every real episode they had, and how long each part took.
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

SWEEP = """
worlds = [{ name = "switch", env.agents = 2, env.horizon = 3 }]
seeds = 6

[settings]
first_chunk = 20
chunk = 20
explorer_steps = 20
final_updates = 3
demonstrations = 0.0
restarts = 1
learner = "vdn"
team.hidden = 8
team.episodes_per_update = 4
team.batch_size = 4
team.buffer_size = 16
explorer.hidden = 8
explorer.episodes_per_update = 4
explorer.batch_size = 4
explorer.buffer_size = 16
model.training.max_epochs = 3
model.training.min_steps_per_epoch = 5
model.reward.training.max_epochs = 3
model.reward.training.min_steps_per_epoch = 5
model.termination.training.max_epochs = 3
model.termination.training.min_steps_per_epoch = 5
model.dynamics.kind = "factored"
model.dynamics.hidden = [8]
model.dynamics.members = 2
model.reward.kind = "factored"
model.reward.hidden = [8]
model.reward.members = 1
model.observation.kind = "factored"
model.observation.hidden = [8]
model.observation.members = 1
model.termination.kind = "factored"
model.termination.hidden = [8]
model.termination.members = 1
model.available.kind = "factored"
model.available.hidden = [8]
model.available.members = 1

[grid]
samples = [40, 60]
lam = [0.0, 2.0]
"""
RUNS = 24


def main() -> None:
    """Kill, continue, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plain", action="store_true", help="plain processes in place of Ray")
    given = parser.parse_args()
    folder = given.out or Path(tempfile.mkdtemp(prefix="sweep-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.toml").write_text(SWEEP)
    command = [sys.executable, "-m", "marco.cli", "sweep", str(folder / "sweep.toml")]
    command += ["--out", str(folder / "out"), "--workers", "2", *([] if given.plain else ["--ray"])]
    begun = time.monotonic()
    driver = subprocess.Popen(command)
    while len(done := finished(folder)) < RUNS // 2 or not under_way(folder):
        if driver.poll() is not None:
            sys.exit(f"the sweep ended by itself, with status {driver.returncode}")
        time.sleep(0.1)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    print(f"killed after {time.monotonic() - begun:.0f} s with {len(done)} runs done", flush=True)
    time.sleep(5.0)
    before, data = digests(finished(folder)), digests(folder.glob("out/runs/*/*/data/chunk-*.npz"))
    cut = under_way(folder)
    begun = time.monotonic()
    subprocess.run(command, check=True)
    print(f"continued for {time.monotonic() - begun:.0f} s", flush=True)
    rows = (folder / "out" / "table.csv").read_text().splitlines()[1:]
    after = digests(before)
    assert len(rows) == RUNS, f"{len(rows)} rows"
    assert after == before, "a finished run was touched"
    assert digests(data) == data, "a real episode was lost"
    print(
        f"{len(rows)} rows; {len(before)} finished runs were not touched; {len(cut)} were under way, and kept"
    )


def finished(folder: Path) -> list[Path]:
    """The results of the runs that are done."""
    return list(folder.glob("out/runs/*/*/result.json"))


def under_way(folder: Path) -> set[Path]:
    """The runs that have real episodes, and no result yet."""
    begun = {path.parents[1] for path in folder.glob("out/runs/*/*/data/chunk-*.npz")}
    return begun - {path.parent for path in finished(folder)}


def digests(paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
    """What files hold, and when they were written."""
    return {path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in paths}


if __name__ == "__main__":
    main()
