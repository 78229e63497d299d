"""The episode under way: on the disk before its next step, and kept whatever ends it."""

import io

import jax
import numpy as np
import pytest

from helpers.host_riddle import HostRiddle, fail_at
from marco.algorithm.collect import collect_missing
from marco.data.dataset import BrokenOff, Dataset
from marco.data.offline import read_logged
from marco.data.open_episode import OpenEpisode, Records, read_open
from marco.policies.base import RandomPolicy
from marco.rollout import play

HORIZON = 6
SPEC = HostRiddle(HORIZON).spec
KEY = 5  # its episode is long


def played(limit=HORIZON):
    """An episode, and what was written down of it."""
    record = OpenEpisode(None, SPEC, limit)
    episode = play(jax.random.key(KEY), HostRiddle(HORIZON), RandomPolicy(), limit, record)
    return episode, record._file.getvalue()


def collect(dataset, env, missing=HORIZON):
    keys = jax.random.split(jax.random.key(dataset.chunks), 1)
    collect_missing(keys, env, RandomPolicy(), dataset, np.array([missing]), chunk=HORIZON)


@pytest.mark.parametrize("limit", [HORIZON, 2])
def test_a_whole_episode_is_what_play_gives(limit):
    episode, raw = played(limit)
    found = read_open(raw, SPEC)
    assert episode.length >= 2
    assert found.lost is None
    for one, other in zip(found.episode, episode, strict=True):
        np.testing.assert_array_equal(one[0, :, 0], other)
        assert one.dtype == other.dtype


def test_whatever_was_written_before_a_kill_is_read_and_counted():
    episode, raw = played()
    records, steps = Records.of(SPEC), int(episode.length)
    first = records.limit.itemsize + records.timestep.itemsize + 8
    acting, showing = records.actions.itemsize + 4, records.timestep.itemsize + 4
    for size in range(len(raw)):
        whole, rest = divmod(max(0, size - first), acting + showing)
        begun = whole + (rest >= acting)
        found = read_open(raw[:size], SPEC)
        if not begun:
            assert found is None
            continue
        assert found.episode.mask.sum() == whole
        assert found.lost == begun - whole
        np.testing.assert_array_equal(found.episode.state[0, : whole + 1, 0], episode.state[: whole + 1])
        np.testing.assert_array_equal(found.episode.actions[0, :begun, 0], episode.actions[:begun])
        assert not (found.episode.terminated | found.episode.truncated).any()
    assert read_open(raw, SPEC).episode.mask.sum() == steps


def test_damage_hides_steps_but_none_goes_uncounted():
    episode, raw = played()
    for at in range(len(raw)):
        found = read_open(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], SPEC)
        shown = int(found.episode.mask.sum())
        assert shown + (found.lost or 0) == episode.length
        np.testing.assert_array_equal(found.episode.reward[0, :shown, 0], episode.reward[:shown])


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_error_in_a_step_breaks_the_episode_off_and_nothing_of_it_is_lost(tmp_path, in_memory):
    dataset = Dataset(None if in_memory else tmp_path, SPEC, 1)
    env = HostRiddle(HORIZON, fail_at(2, 3))
    for number in (1, 2):
        with pytest.raises(ConnectionError) as caught:
            collect(dataset, env)
        called, retraced, which = caught.value.__notes__
        assert "after reset(seed=" in called
        assert retraced.startswith("Actions since the reset: [[")
        assert which == f"This was episode {number} of the run."
    while dataset.samples[0] < 20:
        collect(dataset, env, 20 - dataset.samples[0])
    for held in [dataset] if in_memory else [dataset, Dataset(tmp_path, SPEC, 1)]:
        assert held.samples.tolist() == [20] == [env.total]
        assert held.broken_off == BrokenOff(2, 3)
        episodes = held.episodes(0)  # of the two one had shown a step
        assert episodes.mask.sum() == 18
        assert not (episodes.terminated | episodes.truncated)[:, 0].any()
        assert held.episodes(0, samples=3).mask.shape[1] == 1
    if not in_memory:
        assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


def test_an_error_in_reset_costs_nothing(tmp_path):
    dataset, env = Dataset(tmp_path, SPEC, 1), HostRiddle(HORIZON)
    env.reset = lambda seed: 1 / 0
    with pytest.raises(ZeroDivisionError):
        collect(dataset, env)
    assert (dataset.chunks, dataset.samples.tolist(), list(tmp_path.iterdir())) == (0, [0], [])


def test_what_a_kill_left_is_kept_at_the_next_start_by_who_holds_the_folder(tmp_path):
    episode, raw = played()
    (tmp_path / "open-000000").write_bytes(raw[:-1])  # the last outcome is torn
    reader = Dataset(tmp_path, SPEC, 1)
    assert reader.samples.tolist() == [0]
    assert (tmp_path / "open-000000").exists()  # it may be under way elsewhere
    holder = Dataset(tmp_path, SPEC, 1)
    holder.recover()
    assert holder.samples.tolist() == [episode.length]
    assert holder.broken_off == BrokenOff(1, episode.length)
    assert [path.name for path in tmp_path.iterdir()] == ["chunk-000000.npz"]
    (tmp_path / "open-000000").write_bytes(raw)  # killed after the chunk was written, before this was removed
    holder = Dataset(tmp_path, SPEC, 1)
    holder.recover()
    assert (holder.chunks, len(list(tmp_path.iterdir()))) == (1, 1)


def test_a_kill_after_the_last_step_breaks_nothing_off(tmp_path):
    _, raw = played()
    (tmp_path / "open-000000").write_bytes(raw)
    recovered = Dataset(tmp_path, SPEC, 1)
    recovered.recover()
    assert recovered.broken_off == BrokenOff(0, 0)
    assert set(np.load(tmp_path / "chunk-000000.npz").files) == set(recovered.episodes(0)._fields)


def test_logged_data_of_a_run_with_episodes_that_broke_off_are_read(tmp_path):
    dataset, env = Dataset(tmp_path / "data", SPEC, 1), HostRiddle(HORIZON, fail_at(1, 3))
    for _ in range(2):
        with pytest.raises(ConnectionError):
            collect(dataset, env)
    collect(dataset, env)
    chunks = read_logged([tmp_path], "riddle", {}, SPEC)
    assert sum(int(chunk.mask.sum()) for chunk in chunks) == dataset.samples[0] - 2
    assert len(chunks) == 2  # of the first nothing was shown


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    record = OpenEpisode(tmp_path / "open-000000", SPEC, HORIZON)

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "_file", Full())
    with pytest.raises(OSError, match="open-000000 could not be written: No space left on device"):
        record.act(np.zeros(2, np.int32))


def test_what_nothing_can_be_learned_from_is_refused_before_it_is_written(tmp_path):
    """Else the run could never be read again."""
    dataset = Dataset(tmp_path / "data", SPEC, 1)
    episodes = jax.tree.map(lambda leaf: np.asarray(leaf)[None, :, None], played()[0])
    with pytest.raises(ValueError, match=f"{SPEC.name}: reward holds what are no finite numbers"):
        dataset.append(episodes._replace(reward=np.full_like(episodes.reward, np.nan)))
    assert list((tmp_path / "data").iterdir()) == []
    dataset.append(episodes)


def test_the_clock_of_the_spec_ends_an_episode_that_says_nothing_of_it(tmp_path):
    dataset = Dataset(tmp_path / "data", SPEC, 1)
    first = HostRiddle(HORIZON).reset(0)
    with dataset.recording(limit=10 * HORIZON) as record:
        record.show(first)
        for _ in range(HORIZON):
            record.act(np.zeros(SPEC.num_agents, np.int32))
            record.show(first)
    assert (dataset.broken_off, dataset.samples.tolist()) == (BrokenOff(0, 0), [HORIZON])


def test_files_of_others_are_left_alone_and_chunks_that_are_missing_are_noticed(tmp_path):
    (tmp_path / "open-notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"open-notes\.txt does not belong there"):
        Dataset(tmp_path, SPEC, 1)
    (tmp_path / "open-notes.txt").rename(tmp_path / "open-000003")
    with pytest.raises(ValueError, match="open-000003 comes after chunks that are missing"):
        Dataset(tmp_path, SPEC, 1).recover()
    assert (tmp_path / "open-000003").read_text() == "mine"
