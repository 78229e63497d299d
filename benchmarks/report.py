"""Write benchmarks/README.md, the results table of the top README and the figures, all from the tables.

    python benchmarks/report.py [--check]

The prose is in report.md; `${name}` there is a table or a number of `parts`. With --check nothing is written,
and the exit status says whether the committed texts agree with the data.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from string import Template

from record import (
    MARCO,
    MARCO_PROGRESS,
    MARCO_SECONDS,
    MODEL_FREE,
    RESULTS,
    RMAX,
    SOLVER,
    SOURCES,
    SPEED,
    Results,
    Row,
)
from suite_worlds import WORLDS
from tables import marco, model_free, models, speed, suite, tabular
from tables.common import SPREAD, commits, grouped

HERE = Path(__file__).parent
TOP = HERE.parent
FIGURES = TOP / "docs" / "figures"
BEGIN, END = "<!-- results -->", "<!-- /results -->"


def report(results: Results) -> str:
    """The text of benchmarks/README.md."""
    return Template((HERE / "report.md").read_text()).substitute(parts(results))


def with_results(readme: str, results: Results) -> str:
    """The top README, its results table filled from the data."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md must hold {BEGIN} and {END} once each, around the table of results.")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{marco.headline(results)}\n{END}{rest.split(END)[1]}"


def parts(results: Results) -> dict[str, str]:
    """Everything that report.md asks for, by name."""
    tables = _marco_tables(results) | _other_tables(results)
    return tables | _marco_numbers(results) | _model_free_numbers(results) | _other_numbers(results)


def _marco_tables(results: Results) -> dict[str, str]:
    return {
        "headline": marco.headline(results),
        "marco_default": marco.marco(
            results,
            *(
                "switch-default",
                "switch-default-earlier-draws",
                "switch-fresh",
                "bridge-default",
                "bridge-default-earlier-draws",
                "bridge-fresh",
            ),
            *("reference-default", "spread-default", "spread-two-cores"),
            *("switch-seeds-100", "dectiger-fresh"),
        ),
        "marco_paper": marco.marco(results, "switch-paper", "switch-paper-50000-updates"),
        "marco_collectors": marco.marco(results, "bridge-team", "bridge-random"),
        "marco_earlier": marco.marco(
            results,
            *(
                "switch-less-patience",
                "switch-less-patience-short-epsilon",
                "switch-less-patience-long-epsilon",
            ),
            *(
                "bridge-less-patience",
                "bridge-less-patience-short-epsilon",
                "bridge-less-patience-long-epsilon",
            ),
            "bridge-less-patience-long-epsilon-no-prefixes",
        ),
        "paper_training": marco.training_in_model(results, "switch-paper"),
        "marco_two_cores": marco.marco(
            results, "switch-two-cores", "bridge-two-cores", "reference-two-cores"
        ),
        "marco_seconds": marco.seconds(results),
    }


def _other_tables(results: Results) -> dict[str, str]:
    return {
        "switch_curves": model_free.curves(
            results,
            "switch",
            (30_000, 50_000, 108_000, 147_000, 194_000, 241_000),
            *("switch-iql-paper", "switch-iql-tuned", "switch-vdn-paper"),
        ),
        "bridge_curves": model_free.curves(
            results,
            "bridge",
            (50_000, 97_000, 200_000, 290_000, 390_000, 580_000, 965_000),
            *("bridge-vdn-paper", "bridge-vdn-tuned"),
        ),
        "reference_curves": model_free.curves(
            results,
            "reference",
            (50_000, 100_000, 250_000, 500_000, 1_000_000),
            *("reference-qmix-paper", "reference-mappo-tuned", "reference-qmix-tuned"),
        ),
        "spread_curves": model_free.curves(
            results, "spread", (20_000, 40_000, 100_000, 200_000), "spread-mappo"
        ),
        "suite": suite.suite_table(results, WORLDS),
        "suite_models": suite.model_section(results),
        "controllers": model_free.controllers(results),
        "free": model_free.free(results),
        "switch_models": models.switch_models(results),
        "reference_models": models.reference_models(results),
        "model_seconds": models.model_seconds(results),
        "throughput": speed.throughput(results),
        "learner_speed": speed.learner_speed(results),
        "growth": speed.growth(results),
        "gpu_speed": speed.gpu_speed(results, "switch-iql-paper", "bridge-vdn-paper", "reference-qmix-paper"),
        "solver": tabular.solver(results),
        "rmax": tabular.rmax(results),
        "comparisons": tabular.comparisons(results),
    }


def _marco_numbers(results: Results) -> dict[str, str]:
    rows = [row for row in results.read(MARCO) if row["study"] == "bridge-default"]
    lowest = min(rows, key=lambda row: row["return"])
    others = [row["reward_loss"] for row in rows if row is not lowest]
    total = {row["study"]: row["seconds"] for row in results.read(MARCO_SECONDS) if row["phase"] == "all"}
    met = {
        samples: marco.rewarded_chunks(results, "bridge-team", samples)
        for samples in (10_000, 20_000, 50_000)
    }
    return _ablation_numbers(results) | {
        "lowest_bridge": f"{lowest['return']:.3f}",
        "lowest_bridge_loss": f"{lowest['reward_loss']:.5f}",
        "other_bridge_losses": f"{max(others):.5f}",
        "demo_first": f"{total['demo-first']:.0f}",
        "demo_again": f"{total['demo-again']:.0f}",
        **{f"team_met_{samples}": str(sum(map(bool, counts))) for samples, counts in met.items()},
        "team_met_often": str(sum(count > 2 for counts in met.values() for count in counts)),
    }


def _ablation_numbers(results: Results) -> dict[str, str]:
    rows = results.read(MARCO)

    def of(*studies: str) -> tuple[list[Row], list[Row]]:
        """Runs that end at 0, and the others."""
        own = [row for row in rows if row["study"] in studies]
        return [row for row in own if abs(row["return"]) < 1e-5], [
            row for row in own if abs(row["return"]) >= 1e-5
        ]

    bare = of("bridge-less-patience-long-epsilon-no-prefixes")
    impatient = of("bridge-less-patience", "bridge-less-patience-short-epsilon")
    patient = of("bridge-default", "bridge-default-earlier-draws")
    paper = [row for row in rows if row["study"] == "switch-paper"]
    spread = [row for row in results.read(MARCO_PROGRESS) if row["study"] == "spread-default"]
    explored = [row["return"] for row in spread if row["real_samples"] > spread[0]["real_samples"]]
    return {
        "no_prefix_zeros": f"{len(bare[0])} of {len(bare[0] + bare[1])}",
        "impatient_zeros": f"{len(impatient[0])} of {len(impatient[0] + impatient[1])}",
        "impatient_zero_loss": f"{min(row['reward_loss'] for row in impatient[0]):.4f}",
        "impatient_other_loss": f"{max(row['reward_loss'] for row in impatient[1]):.4f}",
        "patient_zeros": f"{len(patient[0])} of {len(patient[0] + patient[1])}",
        "paper_optimal": f"{marco.optimal(paper)} of {len(paper)}",
        "spread_explored": f"{min(explored):.0f} to {max(explored):.0f}",
    }


def _model_free_numbers(results: Results) -> dict[str, str]:
    rows, found = results.read(MODEL_FREE), {}
    for study in ("switch-iql-paper", "switch-iql-tuned", "bridge-vdn-paper", "bridge-vdn-tuned"):
        runs = grouped((row for row in rows if row["study"] == study), "seed").values()
        best = [max(row["return"] for row in run) for run in runs]
        last = [run[-1]["return"] for run in runs]
        name = study.replace("-", "_")
        found[f"{name}_best"] = f"{max(best):.4f}"
        found[f"{name}_above"] = str(sum(value > 0.70 for value in best))
        found[f"{name}_optimal"] = str(sum(value > 0.7407 for value in last))
    return found


def _other_numbers(results: Results) -> dict[str, str]:
    python = speed.values(results, "throughput", side="mpe2")
    free = {
        (world, quantity): speed.values(results, "free-samples-speed", world=world, quantity=quantity)[0]
        for world in ("switch", "reference")
        for quantity in ("seconds_per_update", "estimated_seconds")
    }
    of = {problem: tabular.rmax_runs(results, problem) for problem in tabular.PROBLEMS}
    few = [runs for cells in of.values() for (_, m), runs in cells.items() if m in (1, 2)]
    riddle = of["switch"]
    runs_of_rmax = [row for table in RMAX.values() for row in results.read(table)]
    return _origins(results) | {
        "rmax_commits": commits(results, runs_of_rmax),
        "spread": SPREAD,
        "mpe2": f"{median(python):,.0f} ({min(python):,.0f} to {max(python):,.0f})",
        **{f"free_{world}_{quantity}": f"{value:.3g}" for (world, quantity), value in free.items()},
        "few_failing": f"{sum(runs.failing for runs in few):,} of {sum(runs.runs for runs in few):,}",
        "random_uncertified": f"{riddle['random', None].uncertified:.0%}",
        "greedy_uncertified": f"{riddle['epsilon-greedy', None].uncertified:.0%}",
        "psrl_uncertified": f"{riddle['psrl', None].uncertified:.0%}",
    }


def _origins(results: Results) -> dict[str, str]:
    """Commands and machines of what one command measured."""
    found = {}
    sources = {row["source"]: row for row in results.read(SOURCES)}
    for name, rows in (
        ("throughput", [row for row in results.read(SPEED) if row["study"] == "throughput"]),
        ("learner_speed", [row for row in results.read(SPEED) if row["study"] == "learner-speed"]),
        ("solver", results.read(SOLVER)),
    ):
        source = sources[rows[0]["source"]]
        versions = [
            f"{package} {source[package]}" for package in ("jax", "jaxmarl", "mpe2") if source[package]
        ]
        machine = f"{source['cpu']}, {source['cores']} cores"
        found[f"{name}_command"] = source["command"]
        found[f"{name}_origin"] = ", ".join([machine, *versions, f"commit {commits(results, rows)}"])
    return found


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check, results = parser.parse_args().check, Results(RESULTS)
    readme = TOP / "README.md"
    texts = {HERE / "README.md": report(results), readme: with_results(readme.read_text(), results)}
    if check:
        stale = [str(path) for path, text in texts.items() if path.read_text() != text]
        sys.exit(
            f"Not what the data give: {', '.join(stale)}. Run python benchmarks/report.py." if stale else 0
        )
    for path, text in texts.items():
        path.write_text(text)
    from figures import draw_headline, draw_rmax

    FIGURES.mkdir(parents=True, exist_ok=True)
    draw_headline(results, FIGURES / "headline.png")
    draw_rmax(results, FIGURES / "rmax.png")


if __name__ == "__main__":
    main()
