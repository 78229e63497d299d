"""The folder of a run may be anyone's: what it names is shown, and run only if the user wants it."""

import json
import sys

import numpy as np
import pytest

from helpers.tiny_run import QUICK, settings
from marco.data.storage import write_atomically
from marco.environments.registry import runs_code
from marco.runs.config import RunConfig, as_json, config_text
from marco.runs.run import Run

CODE = "import pathlib\npathlib.Path({mark!r}).touch()\ndef make(**settings):\n    return settings\n"


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A run whose environment leaves a mark as it is imported."""
    (tmp_path / "their_world.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_world", raising=False)
    return folder_of(tmp_path / "run", "their_world:make", {"x": [1, 2]})


def folder_of(folder, world, world_settings):
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "seed-3.npz").touch()
    (folder / "config.json").write_bytes(
        config_text(RunConfig(world, "marco", settings(), (3,), 20, world_settings))
    )
    return folder


@pytest.mark.parametrize(
    "command", [("evaluate",), ("resume",), ("model",), ("play",), ("train", "--out", "new", "--config")]
)
def test_no_command_imports_what_a_folder_names(run, foreign, command):
    for path in (foreign, foreign / "config.json") if "--config" in command else (foreign,):
        _, err, status = run(*command, path)
        assert status == 2
        assert "would run code: 'their_world:make' with the settings {'x': [1, 2]}" in err
        assert "their_world:make" in err.split("name it (")[1]
        assert "--trust" in err
        assert len(err.splitlines()) == 1
    assert not foreign.with_name("mark").exists()
    assert not foreign.with_name("new").exists()


@pytest.mark.parametrize(
    "wanted",
    [
        ("evaluate", "run", "--world", "their_world:make"),
        ("resume", "run", "--trust"),
        ("train", "their_world:make", "--config", "run"),
        ("train", "--config", "run", "--trust"),
    ],
)
def test_who_names_the_world_or_trusts_the_folder_has_its_code_run(run, foreign, wanted):
    """With the settings of the folder; this code returns them, and so is refused."""
    _, err, status = run(*wanted)
    assert (status, foreign.with_name("mark").exists()) == (2, True)
    assert "their_world:make returned {'x': [1, 2]}, which is no environment" in err


def test_another_name_is_not_the_worlds_own(run, foreign):
    _, err, status = run("evaluate", "run", "--world", "switch")
    assert (status, "run is a run of 'their_world:make'. Name the same." in err) == (2, True)
    moved = folder_of(foreign.with_name("moved"), "/elsewhere/their_world.py:make", {})
    assert Run.open(moved, "their_world.py:make").config.world == "their_world.py:make"


def test_data_of_a_foreign_run_import_nothing(run, foreign):
    (foreign / "data").mkdir()
    (foreign / "data" / "chunk-000000.npz").touch()
    _, err, status = run("train", "switch", "--data", foreign, "--out", "new")
    assert (status, foreign.with_name("mark").exists()) == (2, False)
    assert "is of 'their_world:make'" in err


def test_who_works_inside_a_foreign_folder_imports_nothing_from_it(run, monkeypatch):
    """A file there may have the name of a package: the working folder is for the user's own modules alone."""
    paths = []
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr("marco.cli.play.show_episodes", lambda *_, **__: paths.append(list(sys.path)))
    assert run("play", "switch")[2] == 0
    assert "" not in paths[0]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("switch", False),
        ("dectiger", False),
        ("some/file.dpomdp", False),
        ("os:system.dpomdp", False),
        ("jaxmarl:switch_riddle", False),
        ("nothing", False),
        ("a.b:c", True),
        ("a/b.py:c", True),
        ("jaxmarl:a.py:c", True),
        ("marco.cli:main", True),
    ],
)
def test_which_names_run_code(name, code):
    assert runs_code(name) is code


def test_what_is_printed_can_be_copied(tmp_path):
    """Of a world that is code the printed command names it again."""
    own = Run(tmp_path / "a run", RunConfig("pkg.mod:make", "marco", settings(), (3,), 20))
    assert own.command("resume") == f"marco resume '{tmp_path}/a run' --world pkg.mod:make"
    built_in = Run(tmp_path / "run", RunConfig("switch", "marco", settings(), (3,), 20))
    assert built_in.go_on == f"marco resume {tmp_path}/run"
    unnamed = Run(tmp_path / "run", RunConfig(None, "marco", settings(), (3,), 20))
    assert unnamed.go_on == "the same call of marco.learn goes on"
    foreign = Run(tmp_path / "run", RunConfig("switch", "marco", QUICK, (3,), 20))
    assert foreign.go_on == "the same call of marco.learn goes on"


@pytest.mark.parametrize("name", [".metrics.jsonl.tmp", "metrics.jsonl", "figures", "policy/seed-4.npz"])
def test_no_command_follows_a_link_out_of_a_folder(run, tmp_path, name):
    """By a link a folder could have lines of its own written into any file of the user's."""
    folder, own = folder_of(tmp_path / "run", "switch", {}), tmp_path / "own"
    own.write_text("mine")
    (folder / name).symlink_to(own)
    for command in ("resume", "evaluate", "play", "model"):
        _, err, status = run(command, folder)
        assert (status, f"{folder / name} is a link" in err, "--trust" in err) == (2, True, True)
    assert own.read_text() == "mine"


def test_a_file_is_never_written_through_a_link(tmp_path):
    own = tmp_path / "own"
    own.write_text("mine")
    (tmp_path / ".new.tmp").symlink_to(own)
    write_atomically(tmp_path / "new", b"theirs")
    assert (own.read_text(), (tmp_path / "new").read_bytes()) == ("mine", b"theirs")


def test_numbers_of_numpy_are_written_as_numbers():
    assert as_json({"samples": np.int64(50), "lam": np.float32(0.5)}) == {"samples": 50, "lam": 0.5}
    with pytest.raises(ValueError, match=r"cannot be written to config\.json: <object"):
        as_json({"samples": object()})


@pytest.mark.parametrize("name", ["a b:c", "..os:system", "os.:system", ":c", "a/b:c"])
def test_names_are_checked_before_anything_is_imported(run, name):
    _, err, status = run("play", name)
    assert (status, "names no function: write package.module:function" in err) == (2, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_episodes": 1}, "test_episodes must be at least 2, got 1"),
        ({"seeds": [3, 3]}, "seeds must be different whole numbers"),
        ({"method": "model-free"}, "method='model-free' has other settings"),
        ({"world": "switch\n"}, r"world must be the name of an environment, got 'switch\\n'"),
        ({"tensorboard": "no"}, r"must be bool, got 'no' @ \$\.tensorboard"),
        ({"seeds": "34"}, r"must be a list, got '34' @ \$\.seeds"),
        ({"test_episodes": 20.5}, r"must be int, got 20\.5 @ \$\.test_episodes"),
        ({"method": "\u001b[31m"}, r"x1b\[31m not in literal"),
    ],
)
def test_a_bad_value_in_config_is_named_with_the_cure(tmp_path, change, message):
    folder = folder_of(tmp_path / "run", "switch", {})
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(ValueError, match=message) as caught:
        Run.open(folder)
    assert str(caught.value).startswith(str(config))
    assert "Correct it there, or remove the file" in str(caught.value)
