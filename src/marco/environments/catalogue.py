"""The environments that have a name, as plain data: what `marco worlds` lists, without importing JAX.

Sizes are those of the default settings; a test compares them with the environments themselves.
"""

from typing import Literal, NamedTuple


class Entry(NamedTuple):
    """An environment that has a name."""

    kind: Literal["built-in", "table"]
    summary: str
    path: str
    """The function that makes it: an Environment, or the DecPOMDP of a table."""
    agents: int
    actions: int
    observation_width: int
    state_width: int
    horizon: int
    optimum: float | None = None
    """The value of the best team, where it is known."""
    table: str | None = None
    """The function that makes it as a table, where that is not `path`."""


CATALOGUE = {
    "switch": Entry(
        "built-in",
        "prisoners and a light",
        "marco.environments.switch:Switch",
        agents=3,
        actions=4,
        observation_width=2,
        state_width=7,
        horizon=6,
        optimum=20 / 27,
        table="marco.tabular.library:switch",
    ),
    "bridge": Entry(
        "built-in",
        "the same, past a bridge",
        "marco.environments.bridge:make_bridge",
        agents=3,
        actions=7,
        observation_width=6,
        state_width=19,
        horizon=9,
        optimum=20 / 27,
        table="marco.tabular.library:bridge",
    ),
    "reference": Entry(
        "built-in",
        "MPE simple reference",
        "marco.environments.reference:Reference",
        agents=2,
        actions=50,
        observation_width=21,
        state_width=40,
        horizon=25,
    ),
    "delayed": Entry(
        "built-in",
        "a light that is late",
        "marco.environments.delayed:Delayed",
        agents=2,
        actions=3,
        observation_width=1,
        state_width=10,
        horizon=25,
        optimum=2.0,
    ),
    "foraging": Entry(
        "built-in",
        "level-based foraging",
        "marco.environments.foraging:Foraging",
        agents=2,
        actions=6,
        observation_width=76,
        state_width=76,
        horizon=50,
    ),
    "dectiger": Entry(
        "table",
        "a tiger behind one of two doors",
        "marco.tabular.library:dectiger",
        agents=2,
        actions=3,
        observation_width=2,
        state_width=2,
        horizon=4,
    ),
    "broadcast-channel": Entry(
        "table",
        "two stations, one channel",
        "marco.tabular.library:broadcast_channel",
        agents=2,
        actions=2,
        observation_width=2,
        state_width=4,
        horizon=10,
    ),
    "recycling": Entry(
        "table",
        "two robots and their batteries",
        "marco.tabular.library:recycling",
        agents=2,
        actions=3,
        observation_width=2,
        state_width=4,
        horizon=6,
    ),
    "gridsmall": Entry(
        "table",
        "meeting in a 2x2 grid",
        "marco.tabular.library:gridsmall",
        agents=2,
        actions=5,
        observation_width=2,
        state_width=16,
        horizon=5,
    ),
    "counterexample": Entry(
        "table",
        "where self-loops break R-MAX",
        "marco.tabular.library:counterexample",
        agents=2,
        actions=3,
        observation_width=1,
        state_width=8,
        horizon=5,
    ),
}

FORMS = {
    "FILE.dpomdp or FILE.dpomdp.gz": "a table in a file, with horizon=STEPS",
    "jaxmarl:NAME": "an environment of JaxMARL, as in jaxmarl:MPE_simple_spread_v3",
    "package.module:function": "your own, or any of PettingZoo, as in mpe2.simple_spread_v3:parallel_env",
    "path/to/file.py:function": "your own, in a file",
}
"""How environments without a name of their own are named."""
