"""Compiling ahead: nothing is compiled twice, nothing comes out otherwise, and no thread is left behind."""

import threading
from dataclasses import replace

import jax
import jax.monitoring
import numpy as np
import pytest

from helpers.tiny_run import KNOWN, QUICK, Drifter, begin, settings
from marco.algorithm import precompile as ahead
from marco.algorithm.precompile import compiled_ahead


@pytest.fixture
def compiled():
    """The names of what is compiled, and whether by the main thread."""
    heard = []

    def hear(event, duration, **facts):
        if event == "/jax/core/compile/backend_compile_duration":
            heard.append((facts.get("fun_name"), threading.current_thread() is threading.main_thread()))

    jax.monitoring.register_event_duration_secs_listener(hear)
    yield heard
    jax.monitoring.unregister_event_duration_listener(hear)


def test_later_phases_are_compiled_by_the_thread_and_by_nobody_else(tmp_path, compiled):
    unheard_of = Drifter(episodes_per_update=5)  # nobody has compiled anything for it yet
    plan = settings(team=unheard_of, explorer=unheard_of, team_steps=10, candidates=(unheard_of,) * 2)
    seeds = (3, 4, 5)  # other tests have two
    with compiled_ahead(begin(tmp_path, plan, seeds=seeds, known=KNOWN)) as events:
        phases = [event.phase for event, _ in events if event.over]
    assert phases[-2:] == ["final", "done"]
    large = ("train_seeds_until", "_train_all", "evaluate_all", "best_of")
    names = [(name.removeprefix("jit(").removesuffix(")"), by_main) for name, by_main in compiled]
    by_main = [name for name, main in names if main]
    by_thread = [name for name, main in names if not main]
    assert not set(large) & set(by_main)
    once = dict.fromkeys(large, 1)
    assert {name: by_thread.count(name) for name in large} == once | {
        "train_seeds_until": 2
    }  # team, explorer
    assert by_main.count("_play_batch") <= 1  # random play, before anything is rehearsed
    assert by_thread.count("_play_batch") == 1  # pi_phi
    assert "uncertainty_of_seeds" not in by_main  # another run of the same shape may have compiled it


def test_a_run_compiled_ahead_ends_as_one_that_is_not(tmp_path):
    *_, (_, plain) = begin(tmp_path / "plain", QUICK, known=KNOWN).run()
    with compiled_ahead(begin(tmp_path / "ahead", QUICK, known=KNOWN)) as events:
        *_, (_, state) = events
    jax.tree.map(np.testing.assert_array_equal, state, plain)


def test_a_phase_waits_until_it_has_been_rehearsed(tmp_path, monkeypatch):
    told, rehearsed = [], ahead._rehearse

    def slowly(phase):
        rehearsed(phase)
        told.append("rehearsed")

    monkeypatch.setattr(ahead, "_rehearse", slowly)
    with compiled_ahead(begin(tmp_path, QUICK, known=KNOWN)) as events:
        for event, _ in events:
            if event.phase in ("explore", "final") and event.progress > 0.0:
                told.append(event.phase)
    assert told.index("explore") >= 2  # the team's phase and its own
    assert told[: told.index("final")].count("rehearsed") == 3


def test_a_run_with_a_single_fit_rehearses_its_end_alone(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(ahead, "_rehearse", lambda phase: told.append(next(phase)[0].phase))
    with compiled_ahead(begin(tmp_path, replace(QUICK, first_chunk=QUICK.samples), known=KNOWN)) as events:
        list(events)
    assert told == ["final"]


def test_a_run_that_is_left_early_leaves_no_thread(tmp_path, monkeypatch):
    begun = threading.Event()
    monkeypatch.setattr(ahead, "_rehearse", lambda phase: begun.set())
    with compiled_ahead(begin(tmp_path, QUICK, known=KNOWN)) as events:
        next(event for event, _ in events if event.phase == "fit" and event.over)
    assert begun.is_set()
    assert not any("ThreadPoolExecutor" in thread.name for thread in threading.enumerate())


def test_a_rehearsal_that_fails_fails_nothing_else(tmp_path, monkeypatch):
    def fails(phase):
        raise MemoryError("not today")

    monkeypatch.setattr(ahead, "_rehearse", fails)
    with compiled_ahead(begin(tmp_path, QUICK, known=KNOWN)) as events:
        assert [event.phase for event, _ in events][-1] == "done"
