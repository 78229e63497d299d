"""Compiling ahead: what a run needs later is compiled by a thread while the first model is fitted.

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

from marco.algorithm.events import Event, PhaseName
from marco.algorithm.loop import Events, Marco, MarcoState, Phase, phases


@contextmanager
def compiled_ahead(marco: Marco) -> Iterator[Events]:
    """`marco.run()`, with a thread that compiles ahead; the thread has ended when this is left."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield _run(marco, thread)
        finally:
            thread.shutdown(cancel_futures=True)


def _run(marco: Marco, thread: ThreadPoolExecutor) -> Events:
    rehearsals: dict[PhaseName, Future[None]] = {}
    for event, state in marco.run():
        yield event, state
        if event.progress > 0.0:
            continue
        if event.phase == "fit" and event.iteration == 0:  # about to begin
            rehearsals = _rehearsals(marco, thread, event, state)
        if event.phase in rehearsals:  # else it would be compiled twice
            wait([rehearsals[event.phase]])


def _rehearsals(
    marco: Marco, thread: ThreadPoolExecutor, event: Event, state: MarcoState
) -> dict[PhaseName, Future[None]]:
    """The phases after the first fit, in their order."""
    config = marco.config
    little = replace(config, explorer_steps=1, team_steps=min(1, config.team_steps), final_updates=1)
    rehearsed = replace(marco, config=little)
    # Traced here: two threads must not trace the fit, which is about to begin, at once.
    shapes, _ = marco.model_like(event.samples)
    blank = state._replace(model=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
    names = dict.fromkeys(phase.name for phase in phases(config) if phase.name not in ("collect", "fit"))
    return {
        name: thread.submit(_rehearse, rehearsed.do(Phase(name, 0, event.samples), blank)) for name in names
    }


def _rehearse(phase: Events) -> None:
    """Up to the first segment: all segments run the same programs."""
    for event, _ in phase:
        if event.progress > 0.0:
            return
