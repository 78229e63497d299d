"""The report on the model of a run, from its checkpoint."""

from itertools import islice

from marco.algorithm.loop import phases
from marco.model.report.summary import ModelReport, report_environment
from marco.runs.run import Run
from marco.trees import row_of


def run_model_report(run: Run, seed: int) -> ModelReport:
    """How good the last model of one seed is. Nothing is fitted: model and fits are in the checkpoint."""
    if seed not in run.config.seeds:
        raise ValueError(f"{run.folder} has no seed {seed}: it has {', '.join(map(str, run.config.seeds))}.")
    marco = run.marco()
    marco = marco.shortened(marco.journal.events)
    if not marco.journal.latest:
        raise ValueError(f"{run.folder} has no model yet: its first fit is not finished.")
    *_, phase = islice(phases(marco.config, marco.ended_early), marco.journal.latest)
    state, index = marco.restore(), run.config.seeds.index(seed)
    model, fits = row_of((state.model, state.fits), index)
    fitted = min(phase.samples, marco.config.schedule[-1])  # the trial comes after the last fit
    data = marco.plan(fitted).gather(run.dataset.episodes(index, fitted), marco.config.samples)
    return report_environment(model, fits, data, run.env)
