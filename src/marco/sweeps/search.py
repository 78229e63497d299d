"""Settings that Optuna proposes, one trial after the other; each trial is a cell with all seeds.

Optuna keeps its trials in OUT/search.log, so that a search that was killed goes on. What trial k proposes
depends on the seed of the search and on k alone.
"""

from collections.abc import Callable
from pathlib import Path

from marco.jobs.engine import Engine
from marco.sweeps.cells import Maker
from marco.sweeps.runs import Failure

Say = Callable[[str], None]


def run_search(
    maker: Maker, out: Path, start: Callable[[], Engine], say: Say, dry_run: bool = False
) -> list[Failure]:
    """Run."""
    raise NotImplementedError
