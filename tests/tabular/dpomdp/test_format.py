import gzip
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from helpers.dpomdp_text import BODY, HEADER
from helpers.random_tables import benchmark_problem
from marco.environments.catalogue import CATALOGUE
from marco.tabular.dpomdp.format import FormatError, UnusedDiscountWarning, parse, read, text, write
from marco.tabular.library import load


def test_wildcards_rows_and_overwriting():
    problem = parse(HEADER + BODY + "R: stay *: bad : * : * : -2\nR: 3 : * : * : * : +.5e1")
    np.testing.assert_array_equal(problem.P[0], [[0.25, 0.75], [0.25, 0.75], [1, 0], [1, 0]])
    np.testing.assert_array_equal(problem.O[3], [[0.5, 0.5], [0, 1]])
    np.testing.assert_array_equal(problem.R, [[0, 0, 0, 5], [0, 0, -2, 5]])
    np.testing.assert_array_equal(problem.d0, [1, 0])
    assert problem.actions == (("go", "stay"), ("0", "1"))


def test_rewards_of_next_states_and_observations_are_expectations():
    """From good, go leads to bad with 0.75; there light is seen with 0.5: 8 * 0.75 * 0.5 + 4 * 0.25."""
    rewards = "R: go 0 : good : bad : * light : 8\nR: go 0 : good : good : * : 4"
    assert parse(HEADER + BODY + rewards).R[0, 0] == pytest.approx(8 * 0.75 * 0.5 + 4 * 0.25)
    rows = "R: go 0 : good : bad :\n0 8\nR: go 0 : bad :\n1 1\n2 4"
    assert parse(HEADER + BODY + rows).R[0, 0] == pytest.approx(3.0)
    assert parse(HEADER + BODY + rows).R[1, 0] == pytest.approx(3.0)  # bad stays bad, dark or light


def test_the_dialect_with_quotes_and_short_rewards():
    quoted = HEADER.replace("reward", '"reward"').replace("good bad", '"good" "bad"')
    problem = parse(quoted + BODY + 'R: "*" : "good" : 1.5  # short')
    np.testing.assert_array_equal(problem.R, [[1.5] * 4, [0.0] * 4])


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("start:\nuniform", [0.5, 0.5]),
        ("start:\n0.1 0.9", [0.1, 0.9]),
        ("start: 1", [0, 1]),
        ("start include: bad good", [0.5, 0.5]),
        ("start exclude: 0", [0, 1]),
    ],
)
def test_ways_to_start(start, expected):
    problem = parse(HEADER.replace("start: good", start) + BODY)
    np.testing.assert_allclose(problem.d0, expected)


def test_costs_are_negative_rewards():
    problem = parse(HEADER.replace("values: reward", "values: cost") + BODY + "R: * : good : * : * : 3")
    assert (problem.R[0] == -3.0).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER + BODY + "T: 0 : good :\n0.5 0.4", r"f:22: T: go 0 : good sums to 0.9: probabilities must"),
        (HEADER + BODY + "O: 0 : good :\n1.5 -0.5", r"f:22: O: go 0 : good has the entry -0.5: a prob"),
        (HEADER + BODY + "T: 0 : ugly : good : 1", r"f:22: unknown state 'ugly': use one of good, bad, an"),
        (HEADER + BODY + "T: fly 0 : good : good : 1", r"f:22: unknown action 'fly'"),
        (HEADER + BODY + "T: 9 : good : good : 1", r"f:22: joint action 9 is beyond the last, 3"),
        (HEADER + BODY + "T: go : good : good : 1", r"f:22: a joint action has one word for each of 2"),
        (HEADER + BODY + "R: 0 : 0 : 0 : 0 0 : x", r"f:22: expected a number, got 'x'"),
        (HEADER + BODY + "X: 1", r"f:22: expected a line that begins with T:, O: or R:"),
        (HEADER + BODY + "T: 0 : good :", r"f:22: the file ends where a row of 2 numbers should follow"),
        (HEADER + BODY + "T: 0 : good :\n1", r"f:23: expected a row of 2 numbers, got 1"),
        (
            HEADER + "R: * : good : bad : * : 1\n" + BODY,
            r"there is no line for T: go 0 : good: give its T lines before",
        ),
        (
            HEADER + BODY + "R: * : * : bad : * : 1\nT: * :\nidentity",
            r"f:23: T comes after the reward in line 22",
        ),
        (HEADER.replace("good bad", "good good") + BODY, r"f:5: two states have the same name"),
        (HEADER.replace("values: reward\n", "") + BODY, r"f:4: expected 'values:', got 'states: good bad'"),
        (
            HEADER.replace("start: good", "start exclude: *") + BODY,
            r"f:6: start 'exclude \*' leaves no state",
        ),
        (HEADER.replace("discount: 1", "discount: 1.7"), r"f:3: a discount is from 0 to 1, got 1.7"),
        (HEADER.replace("discount: 1", "discount: -1"), r"f:3: a discount is from 0 to 1, got -1"),
        (HEADER.replace("discount: 1", "discount: nan"), r"f:3: expected a number, got 'nan'"),
        (HEADER + BODY + "R: * : * : * : * : 1e400", r"f:22: expected a number from -1e\+100 to 1e\+100"),
        (HEADER + BODY + "R: * : good : -1e400", r"f:22: expected a number from .* got '-1e400'"),
        (HEADER + BODY + "R: * : * : * : * : inf", r"f:22: expected a number, got 'inf'"),
        (HEADER + BODY + "R: * : bad : * :\n1 nan", r"f:23: expected a number, got 'nan'"),
        (HEADER.replace("good bad", "²"), r"f:5: expected a number of states, at least 1, or their names"),
        (HEADER.replace("good bad", "9" * 5_000), r"f:5: expected a number of states.*9\.\.\.'\.$"),
        (HEADER, r"there is no line for T: go 0 : good"),
        ("", r"f:0: the file ends where 'agents:' should follow"),
    ],
)
def test_mistakes_are_named_with_file_line_and_cure(content, message):
    with pytest.raises(FormatError, match=message):
        parse(content, "f")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            HEADER.replace("good bad", "100000000"),
            r"f:5: .* table T has at least 10,000,000,000,000,000 numbers, which take 80,000,000.0 GB",
        ),
        (
            HEADER.replace("good bad", "20000"),
            r"f:5: .* 400,000,000 numbers, which take 3.2 GB; the limit is 0.8",
        ),
        (
            HEADER.replace("good bad", "5000").replace("good", "0").replace("go stay", "100"),
            r"f:8: .* table T has at least 2,500,000,000 numbers",
        ),
        (
            HEADER.replace("dark light", "100000000"),
            r"f:12: .* table O has at least 800,000,000 numbers, which take 6.4 GB",
        ),
        (
            HEADER.replace("agents: 2", "agents: 1000000"),
            r"f:2: there are 1,000,000 agents, over the limit of 32",
        ),
    ],
)
def test_sizes_are_refused_from_the_header_before_memory_is_taken(content, message):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message):
            parse(content, "f")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_outcomes_are_counted_before_they_are_multiplied_out(monkeypatch):
    monkeypatch.setattr("marco.tabular.problem.ENTRIES", 100)
    with pytest.raises(
        ValueError, match=r"dectiger has 144 outcomes \(s, a, s', o\), which take 0.0 GB; the limit"
    ):
        load("dectiger").dynamics  # noqa: B018


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"R": np.full((2, 9), np.inf)}, "R has an entry that is not finite"),
        ({"discount": 1.5}, "discount must be from 0 to 1, got 1.5"),
    ],
)
def test_tables_made_in_python_are_checked_too(change, message):
    with pytest.raises(ValueError, match=message):
        replace(load("dectiger"), **change)


def test_a_discount_is_not_used_and_this_is_said(tmp_path):
    (tmp_path / "a.dpomdp").write_text(HEADER.replace("discount: 1", "discount: 0.5") + BODY)
    with pytest.warns(
        UnusedDiscountWarning, match=r"discount 0.5 of .*a.dpomdp is not used: returns are und"
    ):
        assert read(tmp_path / "a.dpomdp").discount == 0.5


@pytest.mark.parametrize("suffix", ["dpomdp", "dpomdp.gz"])
def test_byte_order_marks_and_other_line_ends_are_read(suffix, tmp_path):
    data = (HEADER + BODY).replace("\n", "\r\n").encode("utf-8-sig")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    np.testing.assert_array_equal(read(path).P, parse(HEADER + BODY).P)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FormatError, match="there is no file"):
        read(tmp_path / "none.dpomdp")
    (tmp_path / "bad.dpomdp.gz").write_bytes(b"plain")
    with pytest.raises(FormatError, match="cannot be read as text or gzipped text"):
        read(tmp_path / "bad.dpomdp.gz")


@pytest.mark.parametrize(
    "name", [name for name in CATALOGUE if name not in ("bridge", "foraging", "reference")]
)
@pytest.mark.parametrize("suffix", ["dpomdp", "dpomdp.gz"])
def test_what_is_written_is_read_again(name, suffix, tmp_path):
    problem, path = load(name), tmp_path / f"{name}.{suffix}"
    write(problem, path)
    again = load(str(path))
    np.testing.assert_array_equal(again.R, problem.R)
    for table in ("P", "O", "d0"):
        np.testing.assert_allclose(getattr(again, table), getattr(problem, table), rtol=1e-12)
    assert again.actions == problem.actions


def test_zipped_files_hold_the_text(tmp_path):
    write(load("dectiger"), tmp_path / "a.dpomdp.gz")
    assert gzip.decompress((tmp_path / "a.dpomdp.gz").read_bytes()).decode() == text(load("dectiger"))


@pytest.mark.parametrize(("file", "ours"), [("mabc", "broadcast-channel"), ("recycling", "recycling")])
def test_our_problems_are_those_that_others_wrote(file, ours):
    theirs, problem = benchmark_problem(file), load(ours)
    for table in ("P", "R", "O", "d0"):
        np.testing.assert_allclose(getattr(problem, table), getattr(theirs, table), atol=1e-12)


@pytest.mark.parametrize(
    ("file", "sizes", "rewards"),
    [("Grid3x3corners", (81, 25, 81), (0.0, 1.0)), ("Mars", (256, 36, 64), (-11.0, 6.0))],
)
def test_large_files(file, sizes, rewards):
    problem = benchmark_problem(file)
    assert (problem.num_states, problem.num_joint_actions, problem.num_joint_observations) == sizes
    assert (problem.R.min(), problem.R.max()) == rewards
