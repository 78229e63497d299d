"""The report on the model of a run."""

from functools import partial

import jax

from marco.data.dataset import Dataset
from marco.environments.base import Environment, FiniteEnvironment
from marco.runs.run import MarcoRun
from marco.model.report.open_loop import open_loop_error
from marco.model.report.summary import ModelReport, model_report
from marco.model.views import fit_data, models_of, view_and_gather
from marco.model.report.exact import reachable_pairs
from marco.algorithm.vectorised import seed_key
from marco.policies.base import RandomPolicy

TEST_EPISODES = 100
"""True episodes of random play by which a model of numbers is judged; the model never learns from them."""


def run_model_report(run: MarcoRun, seed: int) -> ModelReport:
    """Fit a run's last model again from its data (the same, up to rounding) and judge it.

    Where the run has several models, one per agent, the first agent's is judged.
    """
    if seed not in run.seeds:
        raise ValueError(f"{run.out} has no seed {seed}: it has {', '.join(map(str, run.seeds))}.")
    world, settings = run.true_world, run.settings
    dataset = Dataset(run.out / "data", world.spec, len(run.seeds))
    reached = [target for target in settings.schedule if target <= dataset.samples.min()]
    if not reached:
        raise ValueError(f"{run.out} has no model yet: its first {settings.first} samples are not collected.")
    episodes = dataset.episodes(run.seeds.index(seed), reached[-1])
    data = view_and_gather(settings.kind, world.spec, episodes, settings.samples)
    fit = jax.jit(partial(fit_data, kind=settings.kind, spec=world.spec, settings=settings.model))
    learned, fits = fit(seed_key(seed, len(reached) - 1, 2), data=data)
    model = models_of(learned)[0]
    numbers, central = model.spec.state_has_numbers, settings.kind == "centralised"
    pairs = None
    if isinstance(world, FiniteEnvironment) and central and not numbers:
        pairs = reachable_pairs(world)
    loop = None
    if isinstance(world, Environment) and numbers and settings.kind != "decentralised":
        key = jax.random.key(1_000_000)
        loop = open_loop_error(key, model, world, RandomPolicy(), TEST_EPISODES, world.spec.horizon)
    return model_report(model, fits[0], data[0], pairs, loop)
