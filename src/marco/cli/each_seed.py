"""Several seeds of an environment outside JAX: a process for each, its output line by line."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from marco.checks import cores, machine_memory
from marco.cli.common import console

PER_CORE = 4
"""The most processes for each core: more only wait for each other."""
PROCESS = 2**30
"""The memory of a process, about."""


def most_processes() -> int:
    """How many seeds may run at once on this machine."""
    return max(1, min(PER_CORE * cores(), machine_memory() // PROCESS))


def commands(arguments: list[str], seeds: Sequence[int], out: Path) -> dict[str, list[str]]:
    """The command of each seed: as it was given, but for this seed alone and a folder of its own."""
    return {
        f"seed {seed}": [
            *(sys.executable, "-m", "marco.cli", *arguments),
            *("--seed", str(seed), "--seeds", "1", "--out", str(out / f"seed-{seed}")),
        ]
        for seed in seeds
    }


def run_together(named: dict[str, list[str]]) -> int:
    """Run all commands at once and print their output; returns the worst of their exit statuses.

    Ctrl-C reaches every process by itself: they stop as they would alone, and are waited for.
    """
    processes = {
        name: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, command in named.items()
    }
    readers = [Thread(target=_print_lines, args=(name, process)) for name, process in processes.items()]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers):
        try:
            for reader in readers:
                reader.join()
        except KeyboardInterrupt:
            console.print("Stopping every seed; each says how to go on.")
    return max((process.wait() for process in processes.values()), key=abs)


def _print_lines(name: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        console.print(f"{name}: {line.rstrip()}", markup=False, highlight=False, soft_wrap=True)
