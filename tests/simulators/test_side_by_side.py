"""Simulators side by side: the same episodes in the same places, whatever their number and their failures."""

import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from helpers.collected import HORIZON, TOTAL, chunks, collect, key_of
from helpers.host_riddle import HostRiddle
from helpers.simulated import NAME
from marco import RandomPolicy, make
from marco.algorithm.collect import collect_side_by_side
from marco.data.dataset import BrokenOff, Dataset, PlayedAgain
from marco.data.open_episode import CHECK, OpenEpisode, Records, read_open
from marco.environments.base import WorldError, WorldWarning
from marco.evaluation import sampled_value
from marco.simulators.config import Workers, as_workers
from marco.simulators.pool import Simulators, Task, opened
from marco.simulators.worker import SimulatorLostError
from marco.types import TimeStep

SPEC = HostRiddle(HORIZON).spec


def flawed(tmp_path, *kinds):
    """Settings of a riddle that goes wrong in these ways, and writes down its steps."""
    faults = tmp_path / "faults"
    faults.mkdir()
    for kind in kinds:
        (faults / kind).touch()
    return faults, {"log": str(tmp_path / "log"), "faults": str(faults)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a run in this process."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    collect(folder, None)
    return chunks(folder)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_no_byte_and_no_step_is_taken_beside_the_budget(
    tmp_path, whole, workers
):
    dataset = collect(tmp_path / "data", Workers(workers), log=str(tmp_path / "log"))
    assert chunks(tmp_path / "data") == whole
    assert dataset.samples.tolist() == [TOTAL]
    assert (tmp_path / "log").stat().st_size == TOTAL
    assert {path.suffix for path in (tmp_path / "data").iterdir()} == {".npz"}


def test_simulators_that_die_hang_raise_or_show_nonsense_are_replaced_and_the_data_are_the_same(
    tmp_path, whole
):
    faults, settings = flawed(tmp_path, "kill-0", "kill-1", "hang-0", "raise-0", "nan-0")
    with pytest.warns(WorldWarning, match="It is played again from its start") as told:
        dataset = collect(tmp_path / "data", Workers(2, step_timeout=3.0, attempts=6), **settings)
    assert list(faults.iterdir()) == []
    assert chunks(tmp_path / "data") == whole
    assert (dataset.samples.tolist(), dataset.broken_off) == ([TOTAL], BrokenOff(0, 0))
    # Every step that was begun is counted once: as a sample, or as one that was played again.
    assert dataset.played_again.episodes == 5 == len(told)
    assert dataset.played_again.steps == (tmp_path / "log").stat().st_size - TOTAL
    assert Dataset(tmp_path / "data", SPEC, 1).played_again == dataset.played_again
    # The riddle follows from its seed: what was lost is the beginning of what took its place.
    apart = sorted((tmp_path / "data").glob("again-*"))
    assert len(apart) == 5
    for path in apart:
        lost = read_open(path.read_bytes(), SPEC).episode
        with np.load(tmp_path / "data" / f"chunk-{path.name.split('-')[1]}.npz") as chunk:
            shown = int(lost.mask.sum())
            np.testing.assert_array_equal(chunk["state"][:, : shown + 1], lost.state[:, : shown + 1])
            np.testing.assert_array_equal(chunk["actions"][:, :shown], lost.actions[:, :shown])


def test_a_simulator_that_always_fails_stops_the_run_by_its_own_traceback_and_all_can_go_on(tmp_path):
    faults, settings = flawed(tmp_path)
    first = collect(tmp_path / "data", Workers(2), total=10, **settings)
    (faults / "always").touch()
    with pytest.warns(WorldWarning), pytest.raises(ConnectionError, match="the robot is gone") as caught:
        collect(tmp_path / "data", Workers(2), **settings)
    called, retraced, which = caught.value.__notes__
    assert "step 1 after reset(seed=" in called
    assert retraced.startswith("Actions since the reset: [[")
    assert which in [f"This was episode {first.begun + number} of the run." for number in (1, 2)]
    assert 'raise ConnectionError("the robot is gone")' in str(caught.value.__cause__)
    (faults / "always").unlink()
    dataset = collect(tmp_path / "data", Workers(3), **settings)
    # Two episodes were under way, each with three attempts; the last of each stands, as broken off.
    assert dataset.samples.tolist() == [TOTAL]
    assert dataset.broken_off == BrokenOff(2, 2)
    assert dataset.played_again == PlayedAgain(4, 4)
    assert (tmp_path / "log").stat().st_size == TOTAL + 4


def test_an_episode_is_begun_only_if_it_is_needed_whatever_the_others_take():
    dataset = Dataset(None, SPEC, 1)
    assert dataset.next_episode(20) == (0, 6)
    dataset.begin(0, 6)
    assert dataset.next_episode(20) == (1, 6)  # 14 are left at least
    dataset.begin(1, 6)
    assert dataset.next_episode(20) == (2, 6)  # 8
    dataset.begin(2, 6)
    assert dataset.next_episode(20) is None  # 2 or more: how many depends on the three
    play_to_the_end(dataset, 1, steps=3)
    assert dataset.next_episode(20) is None  # 5 or more
    assert dataset.samples.tolist() == [0]  # the first is still under way
    play_to_the_end(dataset, 0, steps=5)
    assert dataset.samples.tolist() == [8]
    assert dataset.next_episode(20) == (3, 6)  # 12 less 6
    dataset.begin(3, 6)
    assert dataset.next_episode(20) is None
    play_to_the_end(dataset, 2, steps=6)
    play_to_the_end(dataset, 3, steps=4)
    assert dataset.next_episode(20) == (4, 2)
    dataset.begin(4, 2)
    assert dataset.next_episode(20) is None
    play_to_the_end(dataset, 4, steps=2)
    assert (dataset.next_episode(20), dataset.samples.tolist(), dataset.chunks) == (None, [20], 5)


def play_to_the_end(dataset, place, steps):
    """The episode of a place, which ends by itself after so many steps."""
    record, env = dataset._under_way[place], HostRiddle(HORIZON)
    record.show(env.reset(0))
    for number in range(1, steps + 1):
        record.act(np.zeros(2, np.int32))
        ends = {"terminated": np.bool_(number == steps), "truncated": np.bool_(False)}
        record.show(env.step(np.zeros(2, np.int32))._replace(**ends))
    dataset.end(place)


@pytest.mark.parametrize("again", [True, False])
def test_all_that_were_under_way_at_a_kill_are_seen_to(tmp_path, whole, again):
    """One episode was in its second step; the one before it and the one behind were over, a fourth reset."""
    collect(tmp_path, None)
    files = sorted(tmp_path.iterdir())
    written = [as_written(path) for path in files]
    broken = next(place for place in range(2, 9) if len(written[place]) > len(written[2]) or place == 8)
    for path in files[broken - 1 :]:
        path.unlink()
    records = Records.of(SPEC)
    first = records.limit.itemsize + records.timestep.itemsize + 2 * CHECK
    left = {broken - 1: None, broken: first + records.actions.itemsize + CHECK + 5, broken + 1: None}
    for place, size in (left | {broken + 2: first}).items():
        (tmp_path / f"open-{place:06d}").write_bytes(written[place][:size])
    dataset = collect(tmp_path, Workers(2) if again else None)
    assert dataset.samples.tolist() == [TOTAL]
    assert not list(tmp_path.glob("open-*"))
    if again:
        assert chunks(tmp_path) == whole
        assert (dataset.played_again, dataset.broken_off) == (PlayedAgain(1, 1), BrokenOff(0, 0))
        return
    assert (dataset.played_again, dataset.broken_off) == (PlayedAgain(0, 0), BrokenOff(1, 1))
    same = [one == other for one, other in zip(chunks(tmp_path).values(), whole.values(), strict=False)]
    assert same[: broken + 2] == [place != broken for place in range(broken + 2)]


def as_written(path):
    """What was written down of an episode as it was played."""
    with np.load(path) as chunk:
        own = {name: chunk[name][0, :, 0] for name in chunk.files}
    record = OpenEpisode(None, SPEC, HORIZON)
    for at in range(int(own["mask"].sum()) + 1):
        if at:
            record.act(own["actions"][at - 1])
        ends = [np.bool_(at and own[name][at - 1]) for name in ("terminated", "truncated")]
        reward = np.float32(own["reward"][at - 1] if at else 0.0)
        shown = (own[name][at] for name in ("observation", "state", "available"))
        record.show(TimeStep(*shown, np.zeros(2, np.int32), reward, *ends))
    return record._file.getvalue()


def test_test_episodes_side_by_side_have_the_same_value_and_lost_steps_are_counted(tmp_path):
    faults, settings = flawed(tmp_path)
    alone = sampled_value(jax.random.key(1), make(NAME, horizon=HORIZON), RandomPolicy(), 9)
    with opened(Simulators(make(NAME, horizon=HORIZON, **settings), Workers(3))) as simulators:
        assert sampled_value(jax.random.key(1), simulators, RandomPolicy(), 9) == alone
        (faults / "kill-0").touch()
        before = (tmp_path / "log").stat().st_size
        with pytest.warns(WorldWarning, match="was killed by SIGKILL"):
            again = sampled_value(jax.random.key(1), simulators, RandomPolicy(), 9)
        assert again._replace(steps=0) == alone._replace(steps=0)
        assert again.steps == (tmp_path / "log").stat().st_size - before > alone.steps


def test_who_listens_no_more_waits_for_the_episodes_under_way(tmp_path):
    """Real steps are not thrown away; the simulators end with the pool."""
    env = make(NAME, horizon=HORIZON, sleep=0.05)
    dataset = Dataset(tmp_path, env.spec, 1)
    with opened(Simulators(env, Workers(3))) as simulators:
        played = collect_side_by_side(key_of, simulators, RandomPolicy(), dataset, TOTAL)
        next(played)
        played.close()
        pids = [worker._process.pid for worker in simulators._idle]
    assert dataset.chunks >= 3
    assert (dataset.broken_off.episodes, dataset.played_again.episodes) == (0, 0)
    assert not list(tmp_path.glob("open-*"))
    assert len(pids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def once(play):
    """A single task."""
    return iter([Task("an episode", play), None, None]).__next__


def test_an_error_of_our_own_is_not_tried_again():
    simulators, tries = Simulators(make(NAME, horizon=HORIZON), Workers(2)), []

    def full(simulator):
        tries.append(simulator)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        list(simulators.side_by_side(once(full)))
    assert len(tries) == 1
    assert not simulators._idle  # it may be in the middle of an episode
    assert not simulators._busy


def test_a_simulator_ends_with_its_driver_even_if_it_hangs(tmp_path):
    (tmp_path / "hang-0").touch()
    text = (
        "import os, time, marco, numpy as np\n"
        "from marco.simulators.process import ProcessWorker\n"
        "from marco.simulators.worker import recipe_of\n"
        f"env = marco.make({NAME!r}, faults={str(tmp_path)!r})\n"
        "worker = ProcessWorker(env.spec, recipe_of(env), None)\n"
        "worker.reset(0)\n"
        "print(worker._process.pid, flush=True)\n"
        "worker._ask(('step', np.array([3, 3], np.int32)))\n"
        "time.sleep(0.5)\n"
        "os._exit(0)\n"
    )
    path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    driver = subprocess.run([sys.executable, "-c", text], env=path, capture_output=True, check=True)
    pid, ends = int(driver.stdout), time.monotonic() + 20.0
    while alive(pid):
        assert time.monotonic() < ends
        time.sleep(0.05)


def alive(pid):
    """Whether a process is there that nobody only has to bury."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_what_workers_cannot_be_made_for_is_refused_with_the_cure(monkeypatch):
    with pytest.raises(ValueError, match="switch is compiled, and plays its episodes side by side without"):
        Simulators(make("switch"), Workers(2))
    with pytest.raises(ValueError, match=r"give a function that makes it by its name, as in env='package\."):
        Simulators(HostRiddle(), Workers(2))
    for bad, message in (
        ({"count": 0}, "workers must be from 1 to 10,000, got 0"),
        ({"count": 2, "step_timeout": 0.0}, r"step_timeout must be a positive number of seconds, got 0\.0"),
        ({"count": 2, "attempts": 0}, "attempts must be at least 1, got 0"),
        ({"count": 2, "ray": ""}, "ray must be the address of a cluster, or auto, got ''"),
    ):
        with pytest.raises(ValueError, match=message):
            Workers(**bad)
    with pytest.raises(ValueError, match="ray is for workers: say how many, as in workers=8"):
        as_workers(None, "auto", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'marco-marl\[ray\]'"):
        Simulators(make(NAME), Workers(2, ray="auto"))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"settings": {"horizon": 7}}, WorldError, "made another environment in another process"),
        ({"name": "os:abort"}, SimulatorLostError, "was killed by SIGABRT"),
    ],
)
def test_a_simulator_that_cannot_be_made_anew_is_told(changed, error, message):
    simulators = Simulators(make(NAME, horizon=HORIZON), Workers(1, attempts=1))
    simulators._recipe = simulators._recipe._replace(**{"settings": {}} | changed)
    with pytest.raises(error, match=message):
        list(simulators.side_by_side(once(lambda simulator: None)))
