"""What more real samples buy, and when to stop before the budget is spent."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from marco.algorithm.config import MarcoConfig
from marco.algorithm.events import Event

STILL = 2
"""A run ends when so many chunks in a row have gained too little: one alone may be bad luck."""


def gain(before: Any, now: Any, samples: int) -> list[float | None]:
    """By how much a thousand samples raised each value; None where one of the two is not known."""
    raised = (np.asarray(now, float) - np.asarray(before, float)) / samples * 1_000.0
    return [float(one) if np.isfinite(one) else None for one in raised]


def gains(events: Iterable[Event]) -> list[tuple[int, Float[np.ndarray, " S"]]]:
    """By how much a thousand real samples raised the team's return in the model, refit by refit.

    That is the return of the team so far or, where none is trained, of the planned one; nan where there is
    neither. With the samples at the refit.
    """
    found: list[tuple[int, Float[np.ndarray, " S"]]] = []
    before: tuple[int, Float[np.ndarray, " S"]] | None = None
    for event in events:
        values = event.metrics.get("imagined_return", event.metrics.get("planned_return"))
        if event.phase != "team" or values is None:
            continue
        now = (event.samples, np.array(values, float))
        if before is not None:
            each = gain(before[1], now[1], now[0] - before[0])
            found.append((now[0], np.array([np.nan if one is None else one for one in each])))
        before = now
    return found


def shortened(config: MarcoConfig, events: Iterable[Event]) -> MarcoConfig:
    """The configuration of a run that ends where another chunk is not expected to help any seed."""
    if not config.until_gain_below:
        return config
    recent: list[bool] = []
    for samples, gained in gains(events):
        recent.append(bool(np.all(gained < config.until_gain_below)))  # false where nothing is known
        if len(recent) >= STILL and all(recent[-STILL:]):
            return replace(config, samples=min(config.samples, samples + config.trial_samples))
    return config
