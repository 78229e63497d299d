"""Finite Dec-POMDPs: how far the exact solver goes, and which exploration needs the fewest samples.

    python benchmarks/tabular.py solve [--seconds 60] [--files FOLDER]
    python benchmarks/tabular.py rmax [--runs 300] [--problems NAME ...] [--methods NAME ...]

Both take --processes N, --minutes M (a strict limit: running tasks are killed) and --out FOLDER. They may be
killed at any time and continue from the rows in the folder. Run n of a cell of `rmax` has the seed n.
"""

import argparse
import signal
from pathlib import Path

from record import RESULTS, Results
from tabular_learning import CELLS, FAMILIES, STUDIES, study_learning
from tabular_solving import study_solver


def main() -> None:
    """Run a study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("solve", "rmax"))
    parser.add_argument("--processes", type=int, default=1, help="how many cores to use")
    parser.add_argument("--minutes", type=float, default=30.0, help="the limit of the whole study")
    parser.add_argument("--seconds", type=float, default=60.0, help="the limit of each solved entry")
    parser.add_argument("--files", type=Path, help="a folder with the problem files that are not ours")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--problems", nargs="+", choices=tuple(STUDIES), default=list(STUDIES))
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=(*FAMILIES, *CELLS),
        default=list(FAMILIES),
        metavar="NAME",
        help="'rmax', or one cell: 'rmax m=5'",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # finished runs are written before the end
    results = Results(given.out)
    try:
        if given.study == "solve":
            study_solver(given.seconds, given.minutes, given.files, given.processes, results)
        else:
            study_learning(given.runs, given.minutes, given.problems, given.methods, given.processes, results)
    except KeyboardInterrupt:
        print("Stopped; the same command continues from here.")


if __name__ == "__main__":
    main()
