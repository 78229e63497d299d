"""Tables: how fast problems are solved, how far that goes, and which way to explore needs the fewest samples.

    python benchmarks/tabular.py solve [--seconds 60] [--files FOLDER]
    python benchmarks/tabular.py rmax [--runs 300] [--problems NAME ...] [--methods NAME ...]
    python benchmarks/tabular.py figure
    python benchmarks/tabular.py table

Studies take --processes N, --minutes M (strictly: what is under way is then ended) and --out FOLDER. They may
be killed at any time and go on from what the folder holds. The n-th run of a cell of `rmax` has the seed n.
"""

import argparse
import signal
from pathlib import Path

from record import RESULTS
from tabular_figure import draw
from tabular_learning import CELLS, FAMILIES, STUDIES, study_learning
from tabular_solving import study_solver
from tabular_table import comparisons, table


def main() -> None:
    """Run a study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("solve", "rmax", "figure", "table"))
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
    parser.add_argument("--out", type=Path, default=RESULTS / "tabular")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is done is written before the end
    try:
        if given.study == "solve":
            study_solver(given.seconds, given.minutes, given.files, given.processes, given.out)
        elif given.study == "rmax":
            study_learning(
                given.runs, given.minutes, given.problems, given.methods, given.processes, given.out
            )
        elif given.study == "figure":
            draw(given.out)
        else:
            print(*table(given.out), "", *comparisons(given.out), sep="\n")
    except KeyboardInterrupt:
        print("Stopped; the same command goes on from here.")


if __name__ == "__main__":
    main()
