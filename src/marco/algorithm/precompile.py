"""Compiling ahead: what a run needs later is compiled by a thread while its first model is fitted.

A compiler leaves most cores idle, and so does a fit of small networks. The later phases are rehearsed as they
are, in a model of zeros and with nothing to learn: so what they need is what is compiled. A rehearsal that
fails, for want of memory say, fails nothing else: its phase then compiles for itself.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from marco.algorithm.loop import Event, Marco, MarcoState, Phase

Events = Iterator[tuple[Event, MarcoState]]


@contextmanager
def compiled_ahead(marco: Marco) -> Iterator[Events]:
    """`marco.run()`, with a thread that compiles ahead; it has ended when this is left."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield _run(marco, thread)
        finally:
            thread.shutdown(cancel_futures=True)


def _run(marco: Marco, thread: ThreadPoolExecutor) -> Events:
    rehearsals: dict[Phase, Future[None]] = {}
    for event, state in marco.run():
        yield event, state
        if event.share > 0.0:
            continue
        if event.phase == "fit" and event.iteration == 0:  # about to begin
            rehearsals = _rehearsals(marco, thread, event.samples, state)
        if event.phase in rehearsals:  # or all would be compiled twice
            wait([rehearsals[event.phase]])


def _rehearsals(
    marco: Marco, thread: ThreadPoolExecutor, samples: int, state: MarcoState
) -> dict[Phase, Future[None]]:
    """What comes after the first fit, in its order."""
    settings = marco.settings
    little = replace(settings, explorer_steps=1, team_steps=min(1, settings.team_steps), final_updates=1)
    rehearsed = replace(marco, settings=little)
    # Traced here, or the fit, which is about to begin, would be traced by both threads.
    shapes = marco.model_like(samples)
    blank = state._replace(model=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
    end: dict[Phase, Any] = {"finish": rehearsed.finish}
    later: dict[Phase, Any] = {"team": rehearsed.train_team, "explore": rehearsed.explore}
    phases = end if samples == settings.samples else later | end
    return {name: thread.submit(_rehearse, phase(0, samples, blank)) for name, phase in phases.items()}


def _rehearse(phase: Events) -> None:
    """Up to the first piece, in which nothing is learned: all pieces are of the same programs."""
    for event, _ in phase:
        if event.share > 0.0:
            return
