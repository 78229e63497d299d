from marco.tabular.library import load
from marco.tabular.policies import idle_team, number_of_lines, show
from marco.tabular.solver import solve


def test_a_tree_is_cut_before_it_is_made():
    """A tree of 1,000 steps has 2^1000 lines; the first path alone is 1,000 deep."""
    tiger, idle = load("dectiger"), idle_team((2, 2), 1_000)[0]
    lines = show(tiger, idle, 0, 1_500)
    assert len(lines) == 1_500
    assert lines[:2] == ["listen", "  hear-left: listen"]
    assert lines[999:1001] == ["  " * 999 + "hear-left: listen", "  " * 999 + "hear-right: listen"]
    assert number_of_lines(idle) == 2**1_000 - 1


def test_the_lines_of_a_tree_are_counted_without_it():
    """Also where observations are impossible under the policy, and have no line."""
    problem = load("recycling")
    for agent, controller in enumerate(solve(problem.dynamics, 4).team):
        assert number_of_lines(controller) == len(show(problem, controller, agent)) > 4
