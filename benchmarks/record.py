"""Where a figure comes from: kept beside every result."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


def provenance() -> dict[str, Any]:
    """The command, the day, the commit and the machine."""
    return {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }


class Sources:
    """Which commands made the rows of a file that several have added to: a row names its source's number."""

    def __init__(self, held: list[dict[str, Any]]) -> None:
        self.held = held
        self.mine: dict[str, Any] | None = None

    def count(self) -> int:
        """Count one more row of this command; the number of this command."""
        if self.mine is None:
            self.mine = {**provenance(), "runs": 0}
            self.held.append(self.mine)
        self.mine["runs"] += 1
        return len(self.held) - 1


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxmarl": version("jaxmarl") if find_spec("jaxmarl") else None,
        "mpe2": version("mpe2") if find_spec("mpe2") else None,
    }


def commit() -> str:
    """The commit that was measured, marked if the tree had changes; MARCO_COMMIT where there is no git."""
    if "MARCO_COMMIT" in os.environ:
        return os.environ["MARCO_COMMIT"]
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    head = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() or "none"
    return head + ("-dirty" if git(["git", "status", "--porcelain"]).stdout.strip() else "")
