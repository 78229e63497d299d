"""Results as tidy CSV tables: one row per measurement; `sources.csv` holds the provenance of every row.

    python benchmarks/record.py FOLDER    # merge tables that were written elsewhere (--out) into results/

A row replaces the row with the same key. What one command measured together (a table's `unit`: a learning
curve, say) is never mixed with what another measured earlier: the earlier rows go. Tables are written after
every step of a study, so that a study that is cut short loses nothing.
"""

import argparse
import csv
import fcntl
import hashlib
import io
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax

from marco.data.storage import write_atomically

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
Texts = dict[str, str]


class Table(NamedTuple):
    """A CSV file. Columns in `text` are read as strings, those in `numbers` as numbers (None where empty)."""

    name: str
    unit: tuple[str, ...]
    key: tuple[str, ...]
    text: tuple[str, ...]
    numbers: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order of the file."""
        return (*self.text, *self.numbers, "source")


def _table(name: str, key: str, text: str, numbers: str) -> Table:
    """A table from names in one string each; in `key` those of the unit stand before a bar."""
    unit = key.partition("|")[0].split()
    return Table(
        name, tuple(unit), tuple(key.replace("|", "").split()), tuple(text.split()), tuple(numbers.split())
    )


SOURCES = _table("sources", "source", "command date commit cpu device python jax jaxmarl mpe2", "cores")
MARCO = _table(
    "marco",
    "study samples seed",
    "study world preset changes",
    "samples seed return standard_error test_episodes imagined optimum reward_loss",
)
MARCO_PROGRESS = _table(
    "marco_progress",
    "study samples seed | phase real_samples model_steps",
    "study phase",
    "samples seed real_samples model_steps return imagined reward_loss",
)
MARCO_SECONDS = _table("marco_seconds", "study samples | phase", "study phase", "samples seconds compiling")
MODEL_FREE = _table(
    "model_free",
    "study seed | budget",
    "study world learner preset",
    "budget samples seed updates return exact seconds",
)
FREE = _table(
    "free_samples",
    "study seed",
    "study world learner",
    "seed restarts updates samples return exact lowest_restart highest_restart seconds"
    " seconds_with_compilation",
)
CONTROLLERS = _table("controllers", "world team", "world team", "return standard_error test_episodes")
MODELS = _table(
    "models",
    "study size seed",
    "study world preset",
    "size samples seed total_variation total_variation_worst impossible impossible_worst pairs_never_seen"
    " position_error_1 position_error_5 position_error_10 position_error_25 reward_error seconds"
    " seconds_with_compilation",
)
SOLVER = _table(
    "solver",
    "problem horizon",
    "problem state failure",
    "horizon published value upper optimal seconds cpu_seconds occupancy_states limit processes",
)
RMAX = {
    problem: _table(
        f"rmax_{problem}", "method m seed", "method", "m seed samples_to_reach regret plans uncertified"
    )
    for problem in ("recycling", "gridsmall", "switch")
}
SPEED = _table(
    "speed",
    "study | world side quantity size repeat",
    "study world side quantity",
    "size repeat value",
)
SUITE = _table(
    "suite",
    "world cell seed",
    "world cell learner settings",
    "samples seed return standard_error test_episodes imagined seconds",
)
SUITE_MODELS = _table(
    "suite_models",
    "world samples seed | component side",
    "world component side settings",
    "samples seed classes values nats unexplained right seconds",
)
TABLES = (
    MARCO,
    MARCO_PROGRESS,
    MARCO_SECONDS,
    MODEL_FREE,
    FREE,
    CONTROLLERS,
    MODELS,
    SOLVER,
    *RMAX.values(),
    SPEED,
    SUITE,
    SUITE_MODELS,
)


class Results:
    """A folder of tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cache: dict[Table, tuple[tuple[int, int] | None, list[Row]]] = {}

    def read(self, table: Table) -> list[Row]:
        """All rows, numbers as numbers; none if there is no file yet."""
        path = self.folder / f"{table.name}.csv"
        state = (path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else None
        cached = self._cache.get(table)
        if cached is None or cached[0] != state:
            cached = self._cache[table] = (state, [_typed(table, row) for row in self._held(table)])
        return [dict(row) for row in cached[1]]

    def add(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add measurements of this process; each replaces the row with the same key."""
        own = own_source()
        self._write(SOURCES, [own])
        self._write(table, [{**row, "source": own["source"]} for row in rows])

    def merge(self, other: "Results") -> None:
        """Add all rows of another folder, which keep their sources."""
        for table in (SOURCES, *TABLES):
            self._write(table, other.read(table))

    def _held(self, table: Table) -> list[Texts]:
        path = self.folder / f"{table.name}.csv"
        return list(csv.DictReader(io.StringIO(path.read_text()))) if path.exists() else []

    def _write(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        written = [{name: formatted(row.get(name)) for name in table.columns} for row in rows]
        if not written:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several studies may write at the same time
            source = {_values(row, table.unit): row["source"] for row in written}
            kept = [
                row
                for row in self._held(table)
                if source.get(_values(row, table.unit), row["source"]) == row["source"]
            ]
            rows_by_key = {_values(row, table.key): row for row in [*kept, *written]}
            text = io.StringIO()
            writer = csv.DictWriter(text, table.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows_by_key.values())
            write_atomically(self.folder / f"{table.name}.csv", text.getvalue().encode())


def _typed(table: Table, row: Texts) -> Row:
    return {name: parsed(text) if name in table.numbers else text for name, text in row.items()}


def formatted(value: Any) -> str:
    """A value as the files hold it: numbers with six decimals at most."""
    if value is None or isinstance(value, str):
        return value or ""
    rounded = round(float(value), 6)
    return str(int(rounded)) if rounded.is_integer() else repr(rounded)


def parsed(text: str) -> float | int | None:
    """A number of a file; None where there is none."""
    if not text:
        return None
    number = float(text)
    return int(number) if number.is_integer() else number


def _values(row: Texts, columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(row[name] for name in columns)


@cache
def own_source() -> Row:
    """The provenance of this process: command, date, commit, machine and versions, under a short name."""
    facts = {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        **machine(),
    }
    return {**facts, "source": source_name(facts)}


def source_name(facts: Mapping[str, Any]) -> str:
    """Four letters or digits that depend on the whole of it, so that folders can be merged."""
    digest = hashlib.sha256(repr(sorted(facts.items())).encode()).digest()
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[byte % 32] for byte in digest[:4])


def machine() -> Row:
    """The hardware and the versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxmarl": version("jaxmarl") if find_spec("jaxmarl") else None,
        "mpe2": version("mpe2") if find_spec("mpe2") else None,
    }


def commit() -> str:
    """The commit that was measured, marked if code had changes; MARCO_COMMIT where there is no git."""
    if "MARCO_COMMIT" in os.environ:
        return os.environ["MARCO_COMMIT"]
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    head = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() or "none"
    changed = git(["git", "status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results"]).stdout
    return head + ("-dirty" if changed.strip() else "")


def main() -> None:
    """Merge a folder of tables into the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    Results(arguments.out).merge(Results(arguments.folder))


if __name__ == "__main__":
    main()
