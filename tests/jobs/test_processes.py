"""Tasks side by side: what ends, what fails, what dies, and what is left when the caller is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marco.jobs.engine import Engine, start_engine
from marco.jobs.processes import work
from marco.optional import require


def double(shared, task, report):
    report("begun")
    if task == "fail":
        raise ValueError("as it was asked to")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "hang":
        time.sleep(600)
    return shared * task, os.getpid(), os.environ.get("NPROC")


def run(tasks, **options):
    pending = iter(tasks)
    events = work(double, 2, lambda: next(pending, None), **{"processes": 2, **options})
    return [event for event in events if event is not None]


def test_results_reports_and_one_core_each():
    events = run([1, 2, 3])
    done = {event.task: event.value for event in events if event.kind == "done"}
    assert {task: value[0] for task, value in done.items()} == {1: 2, 2: 4, 3: 6}
    assert {value[2] for value in done.values()} == {"1"}
    assert len({value[1] for value in done.values()}) == 2
    assert [event.value for event in events if event.kind == "report"] == ["begun"] * 3


def test_what_fails_or_dies_is_told_and_stops_no_other():
    ended = {event.task: event for event in run(["fail", 1, "die", 2], fresh=True) if event.kind != "report"}
    assert {task: event.kind for task, event in ended.items()} == {
        "fail": "ended",
        "die": "ended",
        1: "done",
        2: "done",
    }
    assert "ValueError: as it was asked to" in ended["fail"].value
    assert "exit code -9" in ended["die"].value
    assert len({ended[1].value[1], ended[2].value[1]}) == 2  # fresh: a process each


def test_a_task_that_hangs_is_ended():
    (begun, ended) = run(["hang"], limit=0.5)
    assert (begun.kind, ended.kind, ended.value) == ("report", "ended", "it took too long")


LIVES = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from test_processes import beat
from marco.jobs.processes import work
if __name__ == "__main__":
    tasks = iter([{file!r}])
    list(work(beat, None, lambda: next(tasks, None), processes=1))
"""


def beat(shared, task, report):
    while True:
        Path(task).write_text(str(time.time()))
        time.sleep(0.05)


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    """SIGKILL leaves the parent no time to end anybody."""
    file, script = tmp_path / "beat", tmp_path / "parent.py"
    script.write_text(LIVES.format(here=str(Path(__file__).parent), file=str(file)))
    parent = subprocess.Popen([sys.executable, str(script)])
    begun = time.monotonic()
    while not file.exists():
        assert time.monotonic() - begun < 60
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    time.sleep(1.0)
    last = file.read_text()
    time.sleep(0.5)
    assert file.read_text() == last


def test_workers_are_as_many_as_cores_if_none_are_given(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("NPROC", "3")
    assert start_engine(None, None) == Engine(3)
    assert start_engine(5, None) == Engine(5)
    with pytest.raises(ValueError, match="--workers must be at least 1, got 0"):
        start_engine(0, None)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'marco-marl\[ray\]'"):
        start_engine(1, "local")
    assert require("json", "x")
