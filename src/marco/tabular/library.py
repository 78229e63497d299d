"""The built-in problems: benchmarks written from their definitions, and environments of MARCO as tables."""

from typing import Any

import numpy as np

from marco.environments.bridge import Bridge
from marco.environments.switch import Switch
from marco.tabular.convert import from_environment
from marco.tabular.problem import DecPOMDP


def load(name: str, **settings: Any) -> DecPOMDP:
    """A problem by its name, with settings of its own: see `marco.environments.registry.problem`."""
    from marco.environments.registry import problem

    return problem(name, **settings)


def dectiger() -> DecPOMDP:
    """Two agents listen for a tiger behind one of two doors, each alone, and open one (Nair et al. 2003).

    Opening a door resets the tiger and gives an uninformative observation. If both listen, each hears the
    right side with probability 0.85.
    """
    states, acts = ("tiger-left", "tiger-right"), ("listen", "open-left", "open-right")
    P, O = np.full((2, 9, 2), 0.5), np.full((9, 2, 4), 0.25)  # noqa: E741
    P[:, 0] = np.eye(2)
    hears = np.array([[0.85, 0.15], [0.15, 0.85]])
    for tiger in range(2):
        O[0, tiger] = np.outer(hears[tiger], hears[tiger]).ravel()
    R = np.zeros((2, 9))
    for tiger in range(2):
        for joint, (a, b) in enumerate(np.ndindex(3, 3)):
            R[tiger, joint] = _tiger_reward(1 + tiger, a, b)
    seen = ("hear-left", "hear-right")
    return DecPOMDP("dectiger", _agents(2), states, (acts,) * 2, (seen,) * 2, P, R, O, np.full(2, 0.5))


def _tiger_reward(tiger_door: int, a: int, b: int) -> float:
    if a == b:
        return -2.0 if a == 0 else -50.0 if a == tiger_door else 20.0
    if 0 in (a, b):
        return -101.0 if tiger_door in (a, b) else 9.0
    return -100.0


def broadcast_channel() -> DecPOMDP:
    """Two stations share a channel; a message gets through if one alone sends (Hansen et al. 2004).

    A buffer that is empty, or whose station sends, is full at the next step with probability 0.9 (first
    station) or 0.1 (second). If both send, they collide. Each station observes a collision with probability
    0.9 if there was one, and with 0.1 if there was none.
    """
    full, states = np.array([0.9, 0.1]), ("S00", "S01", "S10", "S11")
    send, wait = 0, 1
    P, R, O = np.zeros((4, 4, 4)), np.zeros((4, 4)), np.zeros((4, 4, 4))  # noqa: E741
    for joint, acts in enumerate(np.ndindex(2, 2)):
        hears = 0.9 if acts == (send, send) else 0.1
        O[joint] = np.outer([hears, 1 - hears], [hears, 1 - hears]).ravel()
        for state, buffers in enumerate(np.ndindex(2, 2)):
            kept = [1.0 if acts[i] == wait and buffers[i] else full[i] for i in range(2)]
            P[state, joint] = np.outer([1 - kept[0], kept[0]], [1 - kept[1], kept[1]]).ravel()
            alone = acts.index(send) if acts.count(send) == 1 else None
            R[state, joint] = 0.0 if alone is None else float(buffers[alone])
    seen, does = ("collision", "no-collision"), ("send", "wait")
    start = np.array([0.0, 0.0, 0.0, 1.0])
    return DecPOMDP("broadcast-channel", _agents(2), states, (does,) * 2, (seen,) * 2, P, R, O, start)


def recycling() -> DecPOMDP:
    """Two robots collect cans: little ones alone, a big one only together (Amato et al. 2007).

    A battery is high (0) or low (1). Searching discharges it, and may empty one that is low: the robot is
    then carried home and recharged. The team pays 10 for each such robot and earns nothing in that step.
    """
    acts, batteries = ("recharge", "search-little", "search-big"), ("high", "low")
    high_next = np.array([[1.0, 0.7, 0.5], [1.0, 0.2, 0.3]])
    empties = np.array([[0.0, 0.0, 0.0], [0.0, 0.2, 0.3]])
    P, R = np.zeros((4, 9, 4)), np.zeros((4, 9))
    for state, (b, c) in enumerate(np.ndindex(2, 2)):
        for joint, (a, d) in enumerate(np.ndindex(3, 3)):
            first, second = high_next[b, a], high_next[c, d]
            P[state, joint] = np.outer([first, 1 - first], [second, 1 - second]).ravel()
            earned = 5.0 if (a, d) == (2, 2) else 2.0 * ((a == 1) + (d == 1))
            one, other = empties[b, a], empties[c, d]
            R[state, joint] = (1 - one) * (1 - other) * earned - 10.0 * (one + other)
    O = np.broadcast_to(np.eye(4), (9, 4, 4)).copy()  # noqa: E741
    states = tuple(f"{batteries[b]}-{batteries[c]}" for b, c in np.ndindex(2, 2))
    return DecPOMDP(
        "recycling",
        _agents(2),
        states,
        (acts,) * 2,
        (batteries,) * 2,
        P,
        R,
        O,
        np.array([1.0, 0.0, 0.0, 0.0]),
    )


def gridsmall() -> DecPOMDP:
    """Two robots try to be in the same cell of a 2x2 grid (Bernstein et al. 2005; two observations).

    A move succeeds with probability 0.6; each of the other directions, and staying, happens with 0.1. Walls
    stop a robot. Staying always succeeds. Each robot observes only whether it is in the left or the right
    column. The reward is 1 if both are in the same cell after the step.
    """
    directions = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1), "stay": (0, 0)}
    one = np.zeros((4, 5, 4))
    for cell, (row, column) in enumerate(np.ndindex(2, 2)):
        for action, name in enumerate(directions):
            for other, (down, right) in directions.items():
                reached = 2 * min(max(row + down, 0), 1) + min(max(column + right, 0), 1)
                sure = float(other == "stay") if name == "stay" else 0.6 if other == name else 0.1
                one[cell, action, reached] += sure
    P = np.einsum("iak,jbl->ijabkl", one, one).reshape(16, 25, 16)
    met = np.array([float(i == j) for i, j in np.ndindex(4, 4)])
    O = np.zeros((25, 16, 4))  # noqa: E741
    for state, (i, j) in enumerate(np.ndindex(4, 4)):
        O[:, state, 2 * (i % 2) + j % 2] = 1.0
    states = tuple(f"{i}-{j}" for i, j in np.ndindex(4, 4))
    seen = ("left-column", "right-column")
    start = np.zeros(16)
    start[6] = 1.0  # opposite corners: top right, bottom left
    names = (tuple(directions),) * 2
    return DecPOMDP("gridsmall", _agents(2), states, names, (seen,) * 2, P, P @ met, O, start)


def counterexample() -> DecPOMDP:
    """Where Adapted R-MAX as printed gets stuck: self-loops of unknown pairs break optimism (docs/theory.md).

    Only the first agent has a choice, and observations are uninformative. The best team plays a b b b b,
    with the value 4.2 at horizon 5.
    """
    states = ("s0", "s1", "sp", "s1p", "bad", "cs", "bs", "cx")
    index = {name: i for i, name in enumerate(states)}
    moves = {"s0": "sp bad cx", "s1": "s1p bs cs", "sp": "bad sp bad", "s1p": "bad s1p bad"}
    pays = {"s0": (1.0, 0.0, 0.70), "s1": (0.0, 0.82, 0.84), "sp": (0.0, 1.0, 0.0), "s1p": (0.0, 1.0, 0.0)}
    stays = {"cs": 0.84, "bs": 0.82, "cx": 0.70, "bad": 0.0}
    P, R = np.zeros((8, 3, 8)), np.zeros((8, 3))
    for name, following in moves.items():
        for action, after in enumerate(following.split()):
            P[index[name], action, index[after]] = 1.0
        R[index[name]] = pays[name]
    for name, pay in stays.items():
        P[index[name], :, index[name]] = 1.0
        R[index[name]] = pay
    start = np.zeros(8)
    start[[0, 1]] = 0.2, 0.8
    names, seen = (("a", "b", "c"), ("only",)), (("nothing",),) * 2
    return DecPOMDP("counterexample", _agents(2), states, names, seen, P, R, np.ones((3, 8, 1)), start)


def switch(agents: int = 3) -> DecPOMDP:
    """The environment `switch` as a table, for any horizon."""
    return from_environment(Switch(agents))


def bridge(agents: int = 2, length: int = 1) -> DecPOMDP:
    """The environment `bridge` as a table; small sizes only."""
    return from_environment(Bridge(Switch(agents), length))


def _agents(number: int) -> tuple[str, ...]:
    return tuple(str(agent) for agent in range(number))
