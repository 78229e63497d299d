"""Small worlds whose values are known, to catch one mistake each."""

import numpy as np

from marco.environments.tabular import from_tables


def _seen(joint, states, what, kinds):
    """Both agents see the same: `what[state]`, of `kinds`."""
    table = np.zeros((joint, states, kinds * kinds))
    for state, kind in enumerate(what):
        table[:, state, kind * kinds + kind] = 1.0
    return table


def one_step():
    """One joint choice of 2 x 2: only both taking action 1 pays."""
    P = np.ones((1, 4, 1))
    return from_tables(
        P, [[0.0, 0.0, 0.0, 1.0]], np.ones((4, 1, 1)), [1.0], actions=(2, 2), observations=(1, 1), horizon=1
    )


def two_step():
    """QMIX's game: agent 0 first picks a matrix, all 7s or [[0, 1], [1, 8]]. No sum of values tells that."""
    P = np.zeros((3, 4, 3))
    P[0, :2, 1] = P[0, 2:, 2] = 1.0
    P[1:, :, 0] = 1.0
    R = np.array([[0, 0, 0, 0], [7, 7, 7, 7], [0, 1, 1, 8]], float)
    O = _seen(4, 3, [0, 1, 2], 3)  # noqa: E741
    return from_tables(P, R, O, [1.0, 0, 0], actions=(2, 2), observations=(3, 3), horizon=2)


def memory(delay=2):
    """A cue is seen after the first step, then a blank; only an action equal to the cue pays at the end."""
    states = 1 + 2 * (delay + 1)
    P = np.zeros((states, 2, states))
    P[0, :, 1] = P[0, :, 2] = 0.5
    for state in range(1, states):
        P[state, :, min(state + 2, states - 2 + (state + 1) % 2)] = 1.0
    R = np.zeros((states, 2))
    R[states - 2, 0] = R[states - 1, 1] = 1.0
    O = np.zeros((2, states, 3))  # noqa: E741
    for state in range(states):
        O[:, state, {1: 0, 2: 1}.get(state, 2)] = 1.0
    return from_tables(P, R, O, np.eye(states)[0], actions=(2,), observations=(3,), horizon=delay + 2)


def paying(horizon=3):
    """Every step pays 1, and the clock ends it: from t on, horizon - t is left to earn."""
    return from_tables(
        np.ones((1, 2, 1)),
        np.ones((1, 2)),
        np.ones((2, 1, 1)),
        [1.0],
        actions=(2,),
        observations=(1,),
        horizon=horizon,
    )
