"""What users import is in the packages' `__all__`, sorted, and exists."""

import pytest

import marco.tabular
import marco.tabular.dpomdp
import marco.tabular.rmax
import marco.tabular.solver


@pytest.mark.parametrize(
    "package", [marco.tabular, marco.tabular.dpomdp, marco.tabular.rmax, marco.tabular.solver]
)
def test_public_names_exist(package):
    assert all(hasattr(package, name) for name in package.__all__)


def test_the_example_of_the_package():
    from marco.tabular import load, solve

    found = solve(load("dectiger").dynamics, horizon=2)
    assert found.optimal
    assert found.lower == pytest.approx(-4.0)
    assert len(found.team) == 2
