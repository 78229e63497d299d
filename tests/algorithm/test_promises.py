"""What the model promised a team, and what that earned for real."""

import numpy as np
import pytest

from marco.algorithm.collect import promise_warnings
from marco.types import Episode


def episodes(*returns, whole=True):
    """One step each, of these rewards."""
    reward = np.array([returns], np.float32)
    ended = np.full(reward.shape, whole)
    return Episode(
        **dict.fromkeys(Episode._fields, None)
        | {
            "reward": reward,
            "terminated": ended,
            "truncated": np.zeros_like(ended),
            "mask": np.ones_like(ended),
        }
    )


@pytest.mark.parametrize(
    ("promised", "played", "warned"),
    [
        (3.9, episodes(-38.0, -37.0, -39.0), True),
        (-36.0, episodes(-38.0, -37.0, -39.0), False),  # 2 of a range of 40
        (-60.0, episodes(-38.0, -37.0, -39.0), False),  # better than promised
        (0.0, episodes(-40.0, 0.0, 0.0), False),  # far, but by chance as it may be
        (3.9, episodes(-38.0), False),  # one episode says nothing of chance
        (3.9, episodes(-38.0, -37.0, -39.0, whole=False), False),
    ],
)
def test_a_promise_that_is_broken_by_far_is_told(promised, played, warned):
    everything = episodes(-40.0, 0.0, -20.0)
    found = promise_warnings(np.array([promised]), [played], [everything], (7,))
    assert len(found) == warned
    if warned:
        assert "(seed 7) was to earn 3.9 in the model and earned -38 for real" in found[0]
