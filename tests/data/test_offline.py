"""Logged data: made from arrays, read from files and folders, refused when they are of another world."""

import json

import numpy as np
import pytest

from helpers.tiny_run import WORLD, logged_episodes, settings
from marco.data.dataset import Dataset, read_chunk
from marco.data.offline import for_seeds, read_logged, write_logged
from marco.environments.switch import Switch
from marco.runs.config import Logged

SPEC = WORLD.spec


@pytest.fixture
def log(tmp_path):
    write_logged(tmp_path / "log.npz", SPEC, logged_episodes(11))
    return tmp_path / "log.npz"


def read(*paths, spec=SPEC):
    return read_logged(paths, "switch", {"agents": 2, "horizon": 3}, spec)


def test_what_is_written_is_read_padded_to_the_horizon(log):
    (chunk,) = read(log)
    episodes = logged_episodes(11)
    assert chunk.mask.shape == (1, 3, len(episodes))
    assert chunk.mask.sum() == 11
    for number, episode in enumerate(episodes):
        steps = len(episode.actions)
        np.testing.assert_array_equal(chunk.mask[0, :, number], np.arange(3) < steps)
        np.testing.assert_array_equal(chunk.state[0, : steps + 1, number], episode.state)
        np.testing.assert_array_equal(chunk.reward[0, :, number].sum(), episode.reward.sum())
        assert chunk.terminated[0, :, number].any() == episode.terminated
        assert chunk.truncated[0, :, number].any() == (steps == 3 and not episode.terminated)


def test_all_actions_are_available_where_nothing_is_said(tmp_path):
    (one, *_) = logged_episodes(3)
    write_logged(tmp_path / "log.npz", SPEC, [one._replace(available=None)])
    assert read_chunk(tmp_path / "log.npz").episodes.available.all()


def test_files_folders_and_runs_are_read(log, tmp_path):
    run = tmp_path / "run"
    dataset = Dataset(run / "data", SPEC, 1)
    dataset.append(*read(log))
    dataset.append(*read(log))
    config = {"world": "switch", "world_settings": {"agents": 2, "horizon": 3}}
    (run / "config.json").write_text(json.dumps(config))
    assert [len(read(path)) for path in (log, run / "data", run)] == [1, 2, 2]
    assert len(read(log, run)) == 3
    with pytest.raises(ValueError, match=r"config\.json is of 'switch' .* this run is of 'bridge'"):
        read_logged([run], "bridge", {}, SPEC)


def test_every_seed_gets_its_own_episodes_or_those_of_the_first(log):
    (chunk,) = read(log)
    (three,) = for_seeds([chunk], 3)
    assert three.mask.sum((1, 2)).tolist() == [11, 11, 11]
    two = type(chunk)(*(np.concatenate([leaf, leaf[:, :, ::-1]]) for leaf in chunk))
    (own,) = for_seeds([two], 2)
    np.testing.assert_array_equal(own.actions[1], chunk.actions[0, :, ::-1])
    (first,) = for_seeds([two], 1)
    np.testing.assert_array_equal(first.actions, chunk.actions)
    mask = two.mask.copy()
    mask[1] = False
    uneven = two._replace(mask=mask)
    with pytest.raises(ValueError, match="holds no step for some seed"):
        for_seeds([uneven], 2)
    with pytest.raises(ValueError, match="from 11 to 22 steps for different seeds"):
        for_seeds([uneven, two], 2)


def test_data_of_another_world_is_refused(log, tmp_path):
    with pytest.raises(
        ValueError, match=r"log\.npz: observation has the shape .* it is of another environment"
    ):
        read(log, spec=Switch(agents=3, horizon=3).spec)
    (chunk,) = read(log)
    for name, array, message in (
        ("actions", chunk.actions + 4, "some actions are not among those of switch"),
        ("reward", np.full_like(chunk.reward, np.nan), "reward holds what are no finite numbers"),
        ("mask", np.zeros_like(chunk.mask), "holds no step: leave it out"),
    ):
        np.savez(tmp_path / "bad.npz", **(chunk._asdict() | {name: array}))
        with pytest.raises(ValueError, match=rf"bad\.npz.*{message}"):
            read(tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", mine=np.zeros(3))
    with pytest.raises(ValueError, match=r"bad\.npz is no chunk of real episodes: it holds \['mine'\]"):
        read(tmp_path / "bad.npz")


def test_arrays_that_do_not_go_together_are_refused(tmp_path):
    (one, *_) = logged_episodes(3)
    with pytest.raises(ValueError, match="would hold no episodes"):
        write_logged(tmp_path / "log.npz", SPEC, [])
    with pytest.raises(ValueError, match=r"episode 1 has .* actions: it needs as many rewards"):
        write_logged(tmp_path / "log.npz", SPEC, [one, one._replace(reward=np.zeros(9))])
    with pytest.raises(ValueError, match="episode 0 has 4 steps; switch has from 1 to 3"):
        write_logged(tmp_path / "log.npz", SPEC, [one._replace(actions=np.zeros((4, 2), int))])


def test_a_log_changes_the_plan_as_it_counts_or_not():
    assert Logged(("log",), 30, counts=True).adapt(settings()).schedule == (30, 46, 50)
    assert Logged(("log",), 30, counts=False).adapt(settings()).schedule == (30, 46, 62, 78, 80)
    assert Logged(("log",), 5, counts=True).adapt(settings()).schedule == settings().schedule
    assert Logged(("log",), 50, counts=True).adapt(settings()).schedule == (50,)
    with pytest.raises(ValueError, match="51 samples, more than the budget of 50: give --samples 51 or more"):
        Logged(("log",), 51, counts=True).adapt(settings())
