"""The suite: what is finished is kept, nothing is run twice, and the table says what was found."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import suite
from helpers import tiny_run
from marco.environments.registry import make
from marco.environments.switch import Switch
from marco.learners.q_learning import QLearner
from marco.reproduction.statistics import iqm_over
from record import FREE, MODEL_FREE, SOURCES, SUITE_MODELS, Results
from suite import Cell, Suite, cells_of, chosen
from suite_worlds import WORLDS, World, tuned
from tables.suite import lines_of, model_section, standings, suite_table, times

TOY = World("toy", 60, lambda: Switch(2, 3), ceiling=lambda: 0.5)


@pytest.fixture
def toy(tmp_path: Path) -> Suite:
    return Suite([TOY], Results(tmp_path))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instead of running MARCO and learners: what would be run, with a return of a tenth of the seed."""
    ran: list[str] = []
    real = suite.measured

    def fake(cell: Cell, env: Any, seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        ran.append(f"{cell.name} {seeds}")
        if cell.one_seed:
            yield from real(cell, env, seeds)
            return
        for seed in seeds:
            base = 0.2 if cell.kind == "marco" else 0.1
            more = {"imagined": base + 0.05} if cell.kind == "marco" else {}
            yield {"seed": seed, "return": base + seed / 100, "learner": cell.learner or "marco", **more}

    monkeypatch.setattr(suite, "measured", fake)
    return ran


def run_all(toy: Suite, seeds: range, again: bool = False) -> None:
    for cell in cells_of(toy.worlds["toy"]):
        if missing := toy.missing(cell, seeds, again):
            toy.run(cell, missing)


def test_the_budgets_are_those_that_were_fixed_beforehand() -> None:
    budgets = {world.name: world.budget for world in WORLDS}
    assert len(budgets) == 15
    assert [budgets[name] for name in ("switch", "dectiger", "recycling")] == [1_000] * 3
    assert [budgets[name] for name in ("gridsmall", "broadcast-channel")] == [1_000] * 2
    assert [budgets[name] for name in ("delayed", "bridge")] == [3_000] * 2
    particles = ("foraging", "reference", "simple_reference_v3", "simple_spread_v3")
    assert [budgets[name] for name in (*particles, "simple_speaker_listener_v4")] == [10_000] * 5
    assert [budgets[name] for name in ("SMAX 3m", "SMAX 2s3z", "overcooked cramped_room")] == [50_000] * 3


@pytest.mark.parametrize("name", ["simple_speaker_listener_v4", "SMAX 3m", "overcooked cramped_room"])
def test_worlds_of_other_libraries_can_be_made(name: str) -> None:
    (world,) = (world for world in WORLDS if world.name == name)
    assert world.make().spec.horizon == (25 if name.startswith("simple") else 100)


def test_random_play_and_the_ceiling_of_a_small_world(toy: Suite) -> None:
    """The value of random play is exact; the ceiling is the given one."""
    for cell in chosen(toy, None, ["random", "ceiling"]):
        toy.run(cell, (0,))
    found = {row["cell"]: row["return"] for row in toy.rows()}
    assert found["ceiling"] == 0.5
    assert found["random"] == pytest.approx(suite.evaluate(Switch(2, 3), suite.RandomPolicy()).mean, abs=1e-6)


def test_a_learner_is_really_run(toy: Suite) -> None:
    """The whole path once: 60 samples of IQL, two seeds."""
    (cell,) = chosen(toy, ["toy"], ["iql B"])
    toy.run(cell, (0, 1))
    rows = toy.rows()
    assert [row["seed"] for row in rows] == [0, 1]
    assert all(0 < row["samples"] <= 60 and -1 <= row["return"] <= 1 for row in rows)
    assert toy.missing(cell, range(3), again=False) == (2,)


def test_marco_is_really_run(toy: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiny settings: a return and an imagined one for each seed."""
    monkeypatch.setattr(Cell, "config", lambda self, env: tiny_run.settings(samples=self.samples))
    (cell,) = chosen(toy, ["toy"], ["marco B/3"])
    toy.run(cell, (3, 4))
    rows = toy.rows()
    assert [(row["seed"], row["samples"]) for row in rows] == [(3, 20), (4, 20)]
    assert all(-1 <= row["return"] <= 1 and row["imagined"] is not None for row in rows)


def test_what_is_finished_is_kept_and_not_run_again(toy: Suite, counted: list[str]) -> None:
    run_all(toy, range(2))
    assert len(counted) == 16 == len(cells_of(TOY))
    assert "random (0,)" in counted
    assert "marco B/3 (0, 1)" in counted
    counted.clear()
    run_all(toy, range(2))
    assert counted == []
    run_all(Suite([TOY], Results(toy.results.folder)), range(3))
    assert "marco B (2,)" in counted
    assert not any(name.startswith(("random", "ceiling")) for name in counted)
    assert {row["source"] for row in toy.rows()} == {row["source"] for row in toy.results.read(SOURCES)}


def test_a_changed_default_is_noticed(
    toy: Suite, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IQL learns with another rate: its cells are marked, and run again when that is asked for."""
    run_all(toy, range(2))
    assert toy.stale() == set()

    def other(name: Any, spec: Any, samples: int) -> Any:
        learner = tuned(name, spec, samples)
        return replace(learner, learning_rate=1e-2) if getattr(learner, "mixer", "") == "iql" else learner

    monkeypatch.setattr(suite, "tuned", other)
    assert toy.stale() == {("toy", f"iql {share}") for share in ("B", "10 B", "100 B")}
    counted.clear()
    run_all(toy, range(2))
    assert counted == []
    run_all(toy, range(2), again=True)
    assert [name.split()[0] for name in counted] == ["iql"] * 3
    assert toy.stale() == set()


def test_the_table_says_what_was_found(toy: Suite, counted: list[str]) -> None:
    """Returns 0.2 and 0.21 of MARCO, 0.1 and 0.11 model-free, between random play and 0.5."""
    run_all(toy, range(2))
    (one,) = standings(toy.results, [TOY])
    random = one.random
    assert random is not None
    np.testing.assert_allclose(one.scores("marco B"), (np.array([0.2, 0.21]) - random) / (0.5 - random))
    lines = {line[1]: line for line in lines_of(toy.results, [TOY])[1:]}
    assert lines["marco B"][3:6] == [60, 2, pytest.approx(0.205)]
    assert lines["marco B"][-2] == pytest.approx(0.045)
    text = suite_table(toy.results, [TOY], {("toy", "marco B")})
    (line,) = (line for line in text.splitlines() if line.startswith("| `toy`"))
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[5].startswith("IQL 0.1050")
    assert cells[9].startswith("0.2050")
    assert cells[9].endswith("; 2)†")
    assert cells[8].endswith("; 2)")
    assert cells[10].startswith("+0.045 (+")
    assert cells[11] == "more than 100 B"


def test_the_interquartile_mean_over_worlds_worked_by_hand() -> None:
    """Of 0 to 7, four seeds in each of two worlds, the middle half is 2 to 5; a fifth seed is left out."""
    found = iqm_over([np.array([0.0, 2.0, 4.0, 6.0, 99.0]), np.array([1.0, 3.0, 5.0, 7.0])])
    assert found.estimate == 3.5
    assert 0.0 < found.low < 3.5 < found.high < 7.0


def test_other_studies_fill_what_the_suite_has_not_measured(tmp_path: Path) -> None:
    """The ceiling of free samples, and a model-free curve that was evaluated at the same budget."""
    results = Results(tmp_path)
    results.add(FREE, [{"study": "s", "world": "toy", "learner": "qmix", "seed": 0, "return": 0.4}])
    curve = {"study": "toy-vdn-tuned", "world": "toy", "learner": "vdn", "preset": "tuned", "seed": 0}
    results.add(MODEL_FREE, [{**curve, "budget": 600, "samples": 594, "return": 0.3}])
    (one,) = standings(results, [TOY])
    assert one.ceiling == 0.4
    assert one.found["model-free 10 B"].learner == "vdn"
    assert one.found["model-free 10 B"].earlier
    assert "model-free B" not in one.found


def test_unknown_worlds_and_cells_are_refused(toy: Suite) -> None:
    with pytest.raises(SystemExit, match="there is no world 'switsch': there are toy"):
        chosen(toy, ["switsch"], None)
    with pytest.raises(SystemExit, match="there is no cell 'marko': there are random, ceiling, model-free"):
        chosen(toy, None, ["marko"])
    assert [cell.name for cell in chosen(toy, None, ["marco"])] == ["marco B", "marco B/3"]
    assert [cell.samples for cell in chosen(toy, None, ["marco"])] == [60, 20]


@pytest.mark.parametrize("samples", [20, 1_000, 100_000])
def test_schedules_of_learners_fit_the_budget(samples: int) -> None:
    spec = make("switch").spec
    for name in ("iql", "vdn", "qmix"):
        learner = tuned(name, spec, samples)
        assert isinstance(learner, QLearner)
        assert learner.epsilon_anneal_steps == samples // 2
        assert learner.batch_size * spec.horizon <= max(samples, 4 * spec.horizon)


def test_losses_near_zero_are_not_compared_by_their_ratio() -> None:
    """0.0009 nats beside 0.00001 are both certain; 0.05 nats beside as little are five times the least."""
    assert times(0.0009, 0.00001) == pytest.approx(0.09)
    assert times(0.05, 0.00001) == pytest.approx(5.0)
    assert times(0.6, 0.5) == pytest.approx(1.2)


def test_the_table_of_models_holds_losses_beside_those_of_trees(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert model_section(results) == ""
    facts = {"world": "toy", "component": "dynamics", "samples": 1_000, "seed": 0, "settings": "x"}
    sides = {"MARCO": 0.3, "boosting": 0.2, "boosting, related": 0.1}
    results.add(
        SUITE_MODELS,
        [{**facts, "side": side, "nats": nats, "right": 0.9} for side, nats in sides.items()],
    )
    assert "| `toy` | dynamics | 1,000 | nats | 0.3 | 0.2 | 0.1 | 1.50 | 90.0% |" in model_section(results)
