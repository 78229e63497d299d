"""What the real episodes of a run have visited."""

from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from marco.types import Continuous, Episode, Spec, blocks


def distinct_so_far(episodes: Episode) -> dict[str, Int[np.ndarray, " samples"]]:
    """How many different states, and pairs of state and joint action, there were after each real step."""
    # Episodes one after the other, as they were played; T B has them side by side.
    mask = np.asarray(episodes.mask).T
    state = np.swapaxes(np.asarray(episodes.state)[:-1], 0, 1)[mask]
    actions = np.swapaxes(np.asarray(episodes.actions), 0, 1)[mask]
    return {"states": _distinct(state), "pairs of state and action": _distinct(np.hstack([state, actions]))}


def spread_of_chunks(
    episodes: Episode, schedule: tuple[int, ...], spec: Spec
) -> dict[str, Float[np.ndarray, " chunks"]]:
    """The standard deviation of each numeric feature of the state in each chunk, columns averaged."""
    mask = np.asarray(episodes.mask).T
    state = np.swapaxes(np.asarray(episodes.state)[:-1], 0, 1)[mask]
    chunks = [state[begin:end] for begin, end in pairwise((0, *schedule))]
    return {
        feature.name: np.array([chunk[:, block].std(0).mean() for chunk in chunks])
        for feature, block in zip(spec.state, blocks(spec.state), strict=True)
        if isinstance(feature, Continuous)
    }


def _distinct(rows: Float[np.ndarray, "samples columns"]) -> Int[np.ndarray, " samples"]:
    _, first = np.unique(rows, axis=0, return_index=True)
    return np.cumsum(np.isin(np.arange(len(rows)), first))
