"""Compiling ahead: what a run needs later is compiled by threads while the first model is fitted.

Neither a compiler nor the fit of small networks keeps all cores busy. The later phases are rehearsed in a
model of zeros, for one segment of nothing: so exactly what they need is compiled. A rehearsal that fails, for
want of memory say, fails nothing else: its phase then compiles for itself.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp

from marco.algorithm.collect import chunk_metrics, collectors, compile_collection
from marco.algorithm.config import Collector
from marco.algorithm.events import Event, PhaseName
from marco.algorithm.loop import Events, Marco, phases
from marco.algorithm.planning import planned_collectors
from marco.algorithm.state import MarcoState, Stream
from marco.algorithm.trial import acting_for_real
from marco.checks import cores
from marco.environments.base import Environment
from marco.learners.parallel import evaluate_all
from marco.learners.restarts import distinct, restart_keys
from marco.trees import like, repeated

Rehearsals = dict[PhaseName, list[Future[None]]]
"""What is compiled for each phase."""


@contextmanager
def compiled_ahead(marco: Marco) -> Iterator[Events]:
    """`marco.run()`, with threads that compile ahead; they have ended when this is left."""
    with ThreadPoolExecutor(max(1, cores() // 4)) as threads:
        try:
            yield _run(marco, threads)
        finally:
            threads.shutdown(cancel_futures=True)


def _run(marco: Marco, threads: ThreadPoolExecutor) -> Events:
    rehearsals: Rehearsals = {}
    for event, state in marco.run():
        yield event, state
        if event.progress > 0.0:
            continue
        if event.phase == "fit" and event.iteration == 0:  # about to begin
            rehearsals = _rehearsals(marco, threads, event, state)
        if event.phase in rehearsals:  # else it would be compiled twice
            wait(rehearsals[event.phase])


def _rehearsals(marco: Marco, threads: ThreadPoolExecutor, event: Event, state: MarcoState) -> Rehearsals:
    """The phases after the first fit, in their order."""
    config = marco.config
    little = replace(
        config,
        explorer_steps=1,
        team_steps=min(1, config.team_steps),
        final_updates=1,
        planning=min(1, config.planning),
        offline=(),  # as many episodes as there will be are not known yet
    )
    rehearsed = replace(marco, config=little)
    # Traced here: two threads must not trace the fit, which is about to begin, at once.
    shapes, _ = marco.model_like(event.samples)
    blank = state._replace(model=like(shapes))
    rehearsals: Rehearsals = {}
    for phase in phases(config):
        if phase.name == "fit" or phase.name in rehearsals or phase == next(phases(config)):
            continue
        if phase.name == "collect":
            rehearsals["collect"] = [threads.submit(_rehearse_collection, rehearsed, blank)]
        elif phase.name == "trial":
            rehearsals["trial"] = [threads.submit(_rehearse_trial, marco, event.samples)]
        else:
            lines = rehearsed.do(phase._replace(iteration=0, samples=event.samples), blank)
            rehearsals[phase.name] = [threads.submit(_rehearse, lines)]
            if phase.name == "final":
                rehearsals["final"].append(threads.submit(_rehearse_values, marco, event.samples, blank))
    return rehearsals


def _rehearse_collection(marco: Marco, blank: MarcoState) -> None:
    """No step is taken: what would take them is compiled, and the metrics are those of no steps."""
    env, config, view = marco.env, marco.config, marco.view(marco.config.first_chunk)
    seeds = len(marco.seeds)
    if isinstance(env, Environment):
        whose: list[Collector] = [config.collector]
        whose += ["team"] if config.team_share and marco.trains_teams(config.first_chunk) else []
        policies = [collectors(who, config, env.spec, view, blank.team, blank.explorer) for who in whose]
        if marco.planner_collects(config.first_chunk):
            policies.append(planned_collectors(env.spec, [None] * seeds, config.epsilon))
        for policy in policies:
            compile_collection(env, config, policy, seeds)
    nothing = [own._replace(mask=jnp.zeros_like(own.mask)) for own in marco.episodes(config.first_chunk)]
    chunk_metrics(config, env.spec, view, blank.model, nothing)


def _rehearse_trial(marco: Marco, samples: int) -> None:
    """What lets the candidates play is compiled, and not run."""
    if isinstance(marco.env, Environment):
        for one in marco.best_like(samples):
            acting = jax.eval_shape(acting_for_real, one.policy)
            compile_collection(marco.env, marco.config, acting, len(marco.seeds))


def _rehearse_values(marco: Marco, samples: int, blank: MarcoState) -> None:
    """The candidates that do not race are evaluated at its end."""
    keys = restart_keys(marco.keys(0, Stream.FINAL), 1)
    for one in marco.best_like(samples)[len(distinct(marco.config.final_learners)) :]:
        evaluate_all.lower(keys.again, repeated(like(one.policy)), blank.model).compile()


def _rehearse(phase: Events) -> None:
    """Up to the first segment: all segments run the same programs."""
    for event, _ in phase:
        if event.progress > 0.0:
            return
