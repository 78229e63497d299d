"""Small worlds whose values are known, to catch one mistake each."""

import numpy as np

from marco.environments.tabular import from_tables

STATES, HORIZON, OVER = 8, 4, 7
"""All have one shape, so that a learner is compiled once for all of them. In the last state it is over."""


def _world(moves, pays, what):
    """Two agents of two actions; `moves[s, joint]` is where it goes from a state, or the chances of that.

    Both see `what[s]`, one of three kinds, 0 where nothing is said.
    """
    P = np.zeros((STATES, 4, STATES))
    P[:, :, OVER] = 1.0
    for (state, joint), to in moves.items():
        P[state, joint] = np.eye(STATES)[to] if isinstance(to, int) else to
    R = np.zeros((STATES, 4))
    for state, row in pays.items():
        R[state] = row
    O = np.zeros((4, STATES, 9))  # noqa: E741
    for state in range(STATES):
        O[:, state, 4 * what.get(state, 0)] = 1.0
    terminal = np.arange(STATES) == OVER
    shape = {"actions": (2, 2), "observations": (3, 3), "horizon": HORIZON, "terminal": terminal}
    return from_tables(P, R, O, np.eye(STATES)[0], **shape)


def one_step():
    """One joint choice of 2 x 2: only both taking action 1 pays."""
    return _world({}, {0: [0, 0, 0, 1]}, {})


def two_step():
    """QMIX's game: agent 0 first picks a matrix, all 7s or [[0, 1], [1, 8]]. No sum of values tells that."""
    moves = {(0, 0): 1, (0, 1): 1, (0, 2): 2, (0, 3): 2}
    return _world(moves, {1: [7, 7, 7, 7], 2: [0, 1, 1, 8]}, {1: 1, 2: 2})


def memory():
    """A cue is seen after the first step, then nothing; only agent 0's action equal to it pays at the end."""
    cue = 0.5 * (np.eye(STATES)[1] + np.eye(STATES)[2])
    moves = {(0, joint): cue for joint in range(4)}
    moves |= {(state, joint): state + 2 for state in (1, 2, 3, 4) for joint in range(4)}
    return _world(moves, {5: [1, 1, 0, 0], 6: [0, 0, 1, 1]}, {1: 1, 2: 2})


def paying():
    """Every step pays 1, and the clock ends it: from t on, HORIZON - t is left to earn."""
    return _world({(0, joint): 0 for joint in range(4)}, {0: [1, 1, 1, 1]}, {})
