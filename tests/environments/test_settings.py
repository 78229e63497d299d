"""Settings of environments: types, defaults, what config.json holds of them, and functions in files."""

import re
import sys
from pathlib import Path

import pytest

from marco.environments.registry import defaults, full_name, make, name_of, problem
from marco.environments.settings import as_json, from_json
from marco.environments.switch import Switch

CODE = """
from marco.environments import Switch

def make(agents: int = 3, shape: tuple[int, int] = (2, 2), light: bool = True, name: "str" = "a", x=None):
    return Switch(agents)

def unread(agents: "NotImported" = 3, horizon=6):
    return Switch(agents, horizon)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_env.py").write_text(CODE)
    return tmp_path / "my_env.py"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("switch", {"agents": "two"}, "switch: agents must be a whole number, got 'two'."),
        ("switch", {"agents": 3.5}, "switch: agents must be a whole number, got 3.5."),
        ("switch", {"horizon": None}, "switch: horizon must be a whole number, got None."),
        ("switch", {"horizon": True}, "switch: horizon must be a whole number, got True."),
        ("bridge", {"length": "abc"}, "bridge: length must be a whole number, got 'abc'."),
        ("delayed", {"delay": (3,)}, "delayed: delay must be a whole number, got (3,)."),
        ("dectiger", {"horizon": 2.5}, "dectiger: horizon must be a whole number, got 2.5."),
        ("my_env.py:make", {"agents": "two"}, "my_env.py:make: agents must be a whole number, got 'two'."),
        ("my_env.py:make", {"shape": [3, 3]}, "shape must be tuple[int, int], got [3, 3]."),
        ("my_env.py:make", {"light": 1}, "light must be True or False, got 1."),
        ("my_env.py:make", {"name": 7}, "name must be a word, got 7."),
        ("switch", {"agents": 10**9}, "switch with agents=1000000000 has a state of 2,000,000,001 columns"),
        ("bridge", {"length": 10**9}, "bridge with agents=3, length=1000000000 has a state of 3,000,000,010"),
        ("delayed", {"agents": 10**9}, "delayed with agents=1000000000, delay=10 has a state of"),
    ],
)
def test_a_value_of_the_wrong_type_or_size_is_refused_by_name(file, name, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        make(name, **settings)
    assert not hasattr(caught.value, "__notes__")


def test_tables_are_checked_alike():
    with pytest.raises(ValueError, match="switch: agents must be a whole number, got 'two'"):
        problem("switch", agents="two")
    with pytest.raises(ValueError, match="switch with agents=1000000000 has a state of"):
        problem("switch", agents=10**9)


def test_what_annotations_do_not_say_is_accepted(file):
    assert make("my_env.py:make", x={1, 2}, shape=(3, 3), light=False, name="b") == Switch()
    assert make("my_env.py:unread", agents=4) == Switch(4)


def test_tuples_are_read_back_as_tuples():
    settings = {"a": (1, (2.5, "b")), "c": [1, None], "d": {"e": (True,)}, "f": "word"}
    written = as_json(settings)
    assert written["a"] == {"tuple": [1, {"tuple": [2.5, "b"]}]}
    assert from_json(written) == settings


@pytest.mark.parametrize("value", [{1, 2}, b"abc", 1j, {1: 2}, {"tuple": 3}, float("inf"), [(float("nan"),)]])
def test_what_json_cannot_hold_is_refused_by_name(value):
    with pytest.raises(ValueError, match=r"the setting x of the environment cannot be written to"):
        as_json({"x": value})


def test_defaults_are_known(file):
    assert defaults("switch") == {"agents": 3, "horizon": 6}
    assert defaults("dectiger") == {"horizon": 4}
    assert defaults("my_env.py:make")["shape"] == {"tuple": [2, 2]}


def test_a_file_is_named_by_its_whole_path_from_anywhere(file, tmp_path, monkeypatch):
    whole = f"{file}:make"
    assert [full_name(name) for name in ("my_env.py:make", "./my_env.py:make", whole)] == [whole] * 3
    assert name_of(env := make("./my_env.py:make", agents=4)) == (whole, {"agents": 4})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert full_name("~/my_env.py:make") == whole
    assert make("~/my_env.py:make", agents=4) == env
    assert [full_name(name) for name in ("switch", "a.b:c", "x.dpomdp")] == [
        "switch",
        "a.b:c",
        str(Path("x.dpomdp").resolve()),
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_emv.py:make", "there is no file 'my_emv.py'. Correct the path. Do you mean 'my_env.py'?"),
        (
            "my_env.py:mke",
            "It offers ['Switch', 'make', 'unread']. Do you mean 'make'?",
        ),
        (
            "./my_env:make",
            "path/to/file.py:function. Do you mean './my_env.py:make'?",
        ),
        ("my_env.py", "'my_env.py' names a file, but no function in it: write my_env.py:function."),
        (3, "an environment is named by a word, as 'switch', got 3."),
    ],
)
def test_a_path_that_leads_nowhere_is_answered_by_the_one_meant(file, name, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=re.escape(message)):
        make(name)
