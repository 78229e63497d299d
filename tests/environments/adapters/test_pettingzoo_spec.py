import re
import subprocess
import sys
import warnings

import jax.numpy as jnp
import jaxtyping
import mpe2.simple_spread_v3
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test.example_envs import generated_agents_parallel_v0
from pettingzoo.utils import wrappers

from helpers.zoo_toys import Central, Toy, act, toy
from marco.environments.adapters.pettingzoo import PettingZooWorld, WorldError
from marco.environments.base import WorldWarning
from marco.environments.user_code import warn
from marco.optional import require
from marco.types import Categorical, Continuous, binary


@pytest.fixture
def unchecked():
    """Without beartype, as outside of tests: there a wrong type must meet our own message."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# The horizon, the state, the reward: what the description leaves open.


@pytest.mark.parametrize("name", ["max_cycles", "max_steps", "max_episode_steps", "num_iters"])
def test_the_horizon_is_found_on_the_environment_or_on_what_it_wraps(name):
    env = Toy()
    env.max_cycles = None
    setattr(env, name, 11)
    assert PettingZooWorld(env, state="joint").spec.horizon == 11
    assert PettingZooWorld(wrappers.BaseParallelWrapper(env), state="joint").spec.horizon == 11
    assert PettingZooWorld(env, state="joint", horizon=4).spec.horizon == 4


def test_an_unknown_horizon_is_asked_for():
    env = Toy()
    env.max_cycles = None
    with pytest.raises(ValueError, match="toy_v0 does not say how long an episode lasts: give horizon="):
        PettingZooWorld(env, state="joint")


def test_a_state_without_a_space_is_as_many_numbers_as_the_first_one_has():
    assert toy(Central, state="auto").spec.state == (Continuous("state", 3),)


def test_a_state_with_a_space_is_described_by_it():
    class Described(Central):
        state_space = spaces.Dict({"door": spaces.Discrete(2), "hall": spaces.Box(0, 9, (1,))})

        def state(self):
            return {"door": self.steps % 2, "hall": [self.seed]}

    world = toy(Described, state="state")
    assert world.spec.state == (Categorical("door", 2), Continuous("hall", 1))
    assert world.reset(5).state.tolist() == [1, 0, 5]
    assert world.step(act(0, 0)).state.tolist() == [0, 1, 5]
    with pytest.raises(
        WorldError, match=re.escape("toy_v0, step 0, state(), 'hall': got 12, outside Box(0.0, 9.0")
    ):
        world.reset(12)


def test_without_a_state_the_joint_observation_stands_in_with_a_warning():
    with pytest.warns(UserWarning, match=re.escape("toy_v0 does not implement state()")) as caught:
        world = toy(state="auto")
    assert "may not be Markov" in str(caught[0].message)
    assert world.spec.state == (
        binary("a.present"),
        Continuous("a.observation", 2),
        binary("b.present"),
        Continuous("b.observation", 2),
    )
    np.testing.assert_array_equal(world.reset(3).state, np.float32([1, 0, 0.3, 1, 0, 0.3]))


def test_the_joint_observation_shows_who_has_left():
    world = toy(terminate={"a": 1})
    world.reset(3)
    np.testing.assert_array_equal(world.step(act(0, 0)).state, np.float32([0, 0, 0, 1, 0.1, 0.3]))


def test_asking_for_the_joint_observation_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toy(Central, state="joint").reset(0)


def test_a_class_of_an_absent_agent_is_a_class_of_its_own_in_the_joint_observation():
    class Coloured(Toy):
        seen = spaces.Discrete(3)

        def observations(self):
            return dict.fromkeys(self.agents, 2)

    world = toy(Coloured, terminate={"a": 1})
    red = world.spec.state[1]
    assert red == Categorical("a.observation", 4, blank=True, labels=("absent", "0", "1", "2"))
    assert world.reset(0).state.tolist() == [1, 0, 0, 1, 1, 0, 0, 1]
    left = world.step(act(0, 0)).state
    assert left.tolist() == [0, 0, 0, 0, 1, 0, 0, 1]
    assert int(red.decode(jnp.asarray(left[1:4]))) == 0


@pytest.mark.parametrize("kind", [AttributeError, KeyError, RuntimeError, NotImplementedError])
def test_a_state_that_raises_anything_is_stood_in_for_with_the_error_and_the_cure(kind):
    class Wrapped(Toy):
        def state(self):
            raise kind("no such thing")

    with pytest.warns(WorldWarning, match="the joint observation stands in") as caught:
        world = toy(Wrapped, state="auto")
    said = str(caught[0].message)
    assert "say state='joint' (--env.state joint) to accept it" in said
    assert (f"raised {kind.__name__}: " in said) == (kind is not NotImplementedError)
    assert world.reset(3).state.tolist() == pytest.approx([1, 0, 0.3, 1, 0, 0.3])
    if kind is not NotImplementedError:
        with pytest.raises(kind, match="no such thing"):
            toy(Wrapped, state="state")


def test_a_state_that_is_asked_for_must_be_there():
    message = "toy_v0 does not implement state(). Use state='joint' for the joint observation."
    with pytest.raises(ValueError, match=re.escape(message)):
        toy(state="state")


def test_a_warning_names_the_line_that_called_marco_and_none_of_its_own():
    inside = {"__name__": "marco.somewhere", "warn": warn}
    exec("def call(): warn('so it is')", inside)
    with pytest.warns(WorldWarning, match="so it is") as caught:
        inside["call"]()
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_reward_or_state_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=re.escape("reward must be mean, sum or an agent (a, b), got 'max'")):
        PettingZooWorld(Toy(), reward="max")
    with pytest.raises(ValueError, match="state must be one of auto, state, joint, got 'none'"):
        PettingZooWorld(Toy(), state="none")


def test_agents_without_a_fixed_list_are_refused_with_the_cure():
    message = "generated_agents_parallel_v0 has no possible_agents.*Set possible_agents to the list of every"
    with pytest.raises(ValueError, match=message):
        PettingZooWorld(generated_agents_parallel_v0.parallel_env, state="joint")


def test_continuous_actions_are_refused_at_once_by_name():
    message = r"simple_spread_v3, agent 'agent_0': the action space Box\(0.0, 1.0, \(5,\), float32\) is not"
    with pytest.raises(ValueError, match=message) as caught:
        PettingZooWorld(mpe2.simple_spread_v3.parallel_env, continuous_actions=True)
    assert "continuous_actions=False" in str(caught.value)


def test_unsupported_observations_are_refused_at_once_by_name():
    class Talking(Toy):
        seen = spaces.Text(4)

    with pytest.raises(ValueError, match=re.escape("toy_v0, agent 'a': the space Text(1, 4,")):
        toy(Talking)


# How a world is named and made.


def test_an_aec_environment_is_refused_with_the_conversion():
    with pytest.raises(ValueError, match=r"pettingzoo\.utils\.conversions\.aec_to_parallel"):
        PettingZooWorld(mpe2.simple_spread_v3.env())


def test_settings_need_a_function():
    with pytest.raises(
        ValueError, match=re.escape("the settings {'terminate': {}} need a function to pass them")
    ):
        PettingZooWorld(Toy(), terminate={})
    assert PettingZooWorld(Toy, state="joint", terminate={"a": 1})._env.terminate == {"a": 1}


def test_an_error_of_the_factory_itself_is_not_hidden():
    def broken():
        return 1 + "one"

    with pytest.raises(TypeError, match="unsupported operand"):
        PettingZooWorld(broken)


def test_a_missing_extra_is_asked_for_by_name():
    with pytest.raises(ImportError, match=re.escape("pip install 'marco-marl[pettingzoo]'")):
        require("pettingzoo.there_is_no_such_module", "pettingzoo")


def test_marco_is_imported_without_pettingzoo():
    forbid = "import sys; sys.modules['pettingzoo'] = sys.modules['gymnasium'] = None; "
    use = (
        "import marco; from marco.environments.adapters.pettingzoo import PettingZooWorld\n"
        "try: PettingZooWorld(dict)\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", forbid + use], capture_output=True, text=True, check=True)
    assert "pip install 'marco-marl[pettingzoo]'" in done.stdout
