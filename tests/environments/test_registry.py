import re
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.utils.conversions import aec_to_parallel

from helpers.zoo_toys import Toy
from marco.environments.adapters.jaxmarl import JaxMARLWorld
from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.environments.base import Environment, HostWorld, optimum_of
from marco.environments.catalogue import CATALOGUE
from marco.environments.delayed import Delayed
from marco.environments.registry import make, problem
from marco.environments.switch import Switch
from marco.evaluation import exact_value
from marco.policies.base import RandomPolicy
from marco.rollout import play
from marco.tabular.dpomdp.format import write
from marco.tabular.library import dectiger


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_has_the_numbers_of_the_environments(name):
    entry, env = CATALOGUE[name], make(name)
    spec = env.spec
    sizes = (spec.num_agents, spec.num_actions, spec.observation_width, spec.state_width, spec.horizon)
    assert sizes == (entry.agents, entry.actions, entry.observation_width, entry.state_width, entry.horizon)
    assert env.optimum == entry.optimum
    assert spec.name == name


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in ("reference", "foraging")])
def test_every_finite_environment_is_also_a_problem(name):
    sizes = {"bridge": {"agents": 2, "length": 1}, "delayed": {"delay": 2}}.get(name, {})
    table = problem(name, **sizes)
    assert table.name == name
    np.testing.assert_allclose(table.P.sum(-1), 1.0)


def test_environments_are_made_by_name_with_their_settings():
    assert make("switch", agents=4, horizon=8) == Switch(4, 8)
    assert make("bridge", length=2).spec.agents[0].observation_width == 3 + 2
    assert make("switch", agents=4).optimum is None
    assert make("reference").optimum is None
    assert make("dectiger", horizon=2).spec == dectiger().environment(2).spec
    assert optimum_of(make("tests_of_names:zoo")) is None


def test_the_names_of_a_table_are_kept_for_the_reader():
    spec = make("dectiger").spec
    assert spec.state[0].labels == ("tiger-left", "tiger-right")
    assert spec.agents[0].action_label(1) == "open-left"
    assert spec.agents[1].observation[0].labels == ("nothing", "hear-left", "hear-right")


def test_a_file_is_an_environment_and_a_problem(tmp_path):
    path = tmp_path / "mine.dpomdp.gz"
    write(dectiger(), path)
    env = make(str(path), horizon=3)
    assert env.spec.horizon == 3
    assert exact_value(env, RandomPolicy()) == pytest.approx(
        exact_value(make("dectiger", horizon=3), RandomPolicy())
    )
    np.testing.assert_array_equal(problem(str(path)).P, dectiger().P)
    with pytest.raises(
        ValueError, match=r"mine\.dpomdp\.gz does not say how long an episode lasts: give horiz"
    ):
        make(str(path))
    with pytest.raises(ValueError, match=re.escape("there is no file 'none.dpomdp'")):
        make("none.dpomdp", horizon=3)


class Steps:
    """A HostWorld whose reset or step fails when it is told to."""

    def __init__(self, fails=""):
        self.spec, self.fails = Switch(2, 3).spec, fails
        self.env = Switch(2, 3)

    def reset(self, seed):
        if self.fails == "reset":
            raise KeyError("own mistake")
        self.state, timestep = self.env.reset(jax.random.key(seed))
        return jax.tree.map(np.asarray, timestep)

    def step(self, actions):
        if self.fails == "step":
            raise OSError("own mistake")
        self.state, timestep = self.env.step(jax.random.key(0), self.state, jnp.asarray(actions))
        return jax.tree.map(np.asarray, timestep)


class Functions:
    """What a module of a user's own holds."""

    @staticmethod
    def own(agents=2):
        return Switch(agents)

    @staticmethod
    def host():
        return Steps()

    @staticmethod
    def zoo(**settings):
        return Toy(**settings)

    @staticmethod
    def in_turn():
        import mpe2.simple_spread_v3

        return mpe2.simple_spread_v3.env()

    @staticmethod
    def converted():
        return aec_to_parallel(Functions.in_turn())

    @staticmethod
    def marl(num_agents=3):
        import jaxmarl

        return jaxmarl.make("switch_riddle", num_agents=num_agents)

    @staticmethod
    def table():
        return dectiger()

    @staticmethod
    def wrong():
        return 7

    @staticmethod
    def needs(size):
        return Switch(size)

    @staticmethod
    def broken():
        raise ValueError("own mistake")


@pytest.fixture(autouse=True)
def functions(monkeypatch):
    module = ModuleType("tests_of_names")
    for name, function in vars(Functions).items():
        if isinstance(function, staticmethod):
            setattr(module, name, function.__func__)
    monkeypatch.setitem(sys.modules, "tests_of_names", module)


@pytest.mark.parametrize(
    ("name", "settings", "kind", "horizon"),
    [
        ("tests_of_names:own", {"agents": 3}, Switch, 6),
        ("tests_of_names:host", {}, HostWorld, 3),
        ("tests_of_names:zoo", {"state": "joint", "reward": "sum", "horizon": 4}, PettingZooWorld, 4),
        ("tests_of_names:converted", {"horizon": 4}, PettingZooWorld, 4),
        ("tests_of_names:marl", {"num_agents": 4, "horizon": 9, "reward": "sum"}, JaxMARLWorld, 9),
        ("tests_of_names:table", {"horizon": 2}, Environment, 2),
        ("jaxmarl:switch_riddle", {"num_agents": 4}, JaxMARLWorld, 10),
        ("mpe2.simple_spread_v3:parallel_env", {"N": 2, "max_cycles": 7, "horizon": 4}, PettingZooWorld, 4),
    ],
)
def test_whatever_a_function_returns_is_adapted(name, settings, kind, horizon):
    env = make(name, **settings)
    assert isinstance(env, kind)
    assert env.spec.horizon == horizon


def test_a_function_in_a_file_is_found_with_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_it.py").write_text("SIZE = 4\n")
    file = tmp_path / "switch.py"  # a name that hides nothing
    file.write_text(
        "import beside_it\nfrom marco.environments import Switch\n"
        "def mine(horizon=3): return Switch(beside_it.SIZE, horizon)\n"
    )
    assert make(f"{file}:mine") == Switch(4, 3)
    assert make(f"{file}:mine", horizon=5) == Switch(4, 5)
    monkeypatch.chdir(tmp_path)
    assert make("./switch.py:mine") == Switch(4, 3)
    assert problem("./switch.py:mine").name == "switch"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("swich", {}, "unknown environment 'swich': do you mean 'switch'?"),
        ("dec-tiger", {}, "unknown environment 'dec-tiger': do you mean 'dectiger'?"),
        (
            "football",
            {},
            "unknown environment 'football': there are switch, bridge, reference, delayed, foraging",
        ),
        ("switch", {"lenght": 3}, "switch has no setting 'lenght': it has agents, horizon."),
        ("bridge", {"lenght": 3}, "it has agents, length, horizon. Do you mean 'length'?"),
        ("switch", {"horizon": 0}, "horizon of at least 1, got 0"),
        ("switch", {"reward": "sum"}, "switch has no setting 'reward': it has agents, horizon."),
        ("dectiger", {"agents": 3}, "dectiger has no setting 'agents': it has none."),
        ("dectiger", {"reward": "sum"}, "dectiger has no setting 'reward': it has horizon."),
        ("jaxmarl:MPE_simple_spred_v3", {}, "do you mean 'jaxmarl:MPE_simple_spread_v3'?"),
        (
            "mpe2.simple_spread_v3",
            {},
            "'mpe2.simple_spread_v3' names no function: write package.module:function",
        ),
        ("mpe3.spread:parallel_env", {}, "there is no module 'mpe3'. Install it or correct the path."),
        ("mpe2.spread_v9:parallel_env", {}, "there is no module 'mpe2.spread_v9'."),
        ("none.py:make", {}, "there is no file 'none.py'"),
        (
            "mpe2.simple_spread_v3:parallel",
            {},
            "has no function 'parallel'. It offers ['env', 'parallel_env'",
        ),
        (
            "mpe2.simple_spread_v3:parallel_env",
            {"agents": 3},
            "cannot be called with the settings {'agents': 3}: raw_env.__init__() got an unexpected keyword",
        ),
        ("mpe2.simple_spread_v3:env", {}, "simple_spread_v3 is an AECEnv, whose agents act in turn. Use its"),
        ("tests_of_names:in_turn", {}, "pettingzoo.utils.conversions.aec_to_parallel"),
        ("builtins:dict", {}, "builtins:dict returned {}, which is no environment: return an Environment"),
        ("tests_of_names:wrong", {}, "tests_of_names:wrong returned 7, which is no environment"),
        ("tests_of_names:own", {"agent": 3}, "has no setting 'agent': it has agents. Do you mean 'agents'?"),
        ("tests_of_names:own", {"horizon": 3}, "tests_of_names:own has no setting 'horizon': it has agents."),
        (
            "tests_of_names:host",
            {"reward": "sum"},
            "tests_of_names:host has no setting 'reward': it has none.",
        ),
        ("tests_of_names:marl", {"state": "joint"}, "has no setting 'state': it has horizon, reward."),
        (
            "tests_of_names:needs",
            {},
            "missing 1 required positional argument: 'size'. Leave out or add what it",
        ),
        ("tests_of_names:table", {}, "tests_of_names:table does not say how long an episode lasts"),
    ],
)
def test_a_name_or_setting_that_leads_nowhere_says_so_with_the_cure(name, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        make(name, **settings)
    assert not hasattr(caught.value, "__notes__")


def test_what_cannot_be_a_table_says_so():
    with pytest.raises(ValueError, match="reference cannot be written as a table"):
        problem("reference")
    with pytest.raises(ValueError, match="dectiger has no setting 'horizon': it has none"):
        problem("dectiger", horizon=3)
    assert problem("delayed", agents=1, delay=2).num_states == Delayed(1, 2).spec.state[0].size + 1 + 2


def test_an_error_of_the_function_itself_keeps_its_kind_and_gets_a_note():
    with pytest.raises(ValueError, match="own mistake") as caught:
        make("tests_of_names:broken")
    assert caught.value.__notes__ == ["MARCO called: tests_of_names:broken with the settings {}"]


@pytest.mark.parametrize(
    ("call", "kind", "notes"),
    [
        ("reset", KeyError, [r"MARCO called: reset\(seed=\d+\) of switch"]),
        (
            "step",
            OSError,
            [
                r"MARCO called: step 1 after reset\(seed=\d+\) of switch, with the actions \[\d, \d\]",
                r"Actions since the reset: \[\[\d, \d\]\]",
            ],
        ),
    ],
)
def test_an_error_of_a_host_environment_propagates_with_step_and_actions(call, kind, notes):
    with pytest.raises(kind, match="own mistake") as caught:
        play(jax.random.key(0), Steps(call), RandomPolicy())
    for note, written in zip(notes, caught.value.__notes__, strict=True):
        assert re.fullmatch(note, written)


def test_play_is_the_same_in_compiled_and_host_environments_of_every_kind():
    episode = play(jax.random.key(0), Switch(2, 3), RandomPolicy())
    assert all(isinstance(leaf, np.ndarray) for leaf in episode)
    assert play(jax.random.key(0), Switch(2, 3), RandomPolicy(), limit=1).length == 1
    assert play(jax.random.key(0), Steps(), RandomPolicy(), limit=1).length == 1


def test_public_names_are_all_there():
    from marco import environments

    for name in environments.__all__:
        assert getattr(environments, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = environments.nothing
