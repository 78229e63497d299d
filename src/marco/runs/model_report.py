"""The report on the model of a run, from its checkpoint."""

from itertools import islice

import jax

from marco.algorithm.loop import phases
from marco.model.report.summary import ModelReport, report_environment
from marco.runs.run import Run


def run_model_report(run: Run, seed: int) -> ModelReport:
    """How good the last model of one seed is. Nothing is fitted: model and fits are in the checkpoint."""
    if seed not in run.config.seeds:
        raise ValueError(f"{run.folder} has no seed {seed}: it has {', '.join(map(str, run.config.seeds))}.")
    marco = run.marco()
    if not marco.journal.latest:
        raise ValueError(f"{run.folder} has no model yet: its first fit is not finished.")
    *_, phase = islice(phases(marco.config), marco.journal.latest)
    state, index = marco.restore(), run.config.seeds.index(seed)
    model, fits = jax.tree.map(lambda leaf: leaf[index], (state.model, state.fits))
    data = marco.plan(phase.samples).gather(run.dataset.episodes(index, phase.samples), marco.config.samples)
    return report_environment(model, fits, data, run.env)
