"""The scripts of the studies fit the library, and need no more of it than the machines have that run them."""

import os
import subprocess
import sys
from argparse import ArgumentTypeError
from typing import Any

import pytest

from budgets import rehearsal, setting
from marco.algorithm.config import MarcoConfig
from marco.environments.registry import make
from report import HERE

ABSENT = ("tyro", "cattrs", "filelock")
"""Not installed on the machines with a GPU."""


def test_every_script_can_be_imported_where_the_command_line_is_not_installed() -> None:
    scripts = sorted(path.stem for path in HERE.glob("*.py"))
    code = f"import sys\nfor name in {ABSENT}: sys.modules[name] = None\nimport {', '.join(scripts)}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE, env=environment)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("team.learning_rate=5e-4", ("team.learning_rate", 5e-4)),
        ("warm_explorer=False", ("warm_explorer", False)),
        ("collector=team", ("collector", "team")),
    ],
)
def test_a_setting_is_a_python_literal_or_text(text: str, meant: tuple[str, Any]) -> None:
    assert setting(text) == meant


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="name=value, got 'lam'"):
        setting("lam")


def test_a_rehearsal_has_two_chunks_where_the_study_has_several_and_never_more_samples() -> None:
    spec = make("switch").spec
    several = rehearsal(MarcoConfig.preset("default", spec, samples=2_000))
    assert several.schedule == (500, 501)
    assert (several.explorer_steps, several.final_updates) == (1, 1)
    one = rehearsal(MarcoConfig.preset("default", spec, samples=500))
    assert one.schedule == (500,)
