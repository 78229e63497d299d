"""The examples, and the Python blocks of the documents, do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- not run[^\n]*\n)?```python\n(.*?)```", re.DOTALL)


def run(*arguments, cwd):
    """What a script printed; its exit status must be 0."""
    # These train for longer than other tests: compiled code has to be somewhat better.
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(pattern, text):
    """The number that stands where the pattern has its group."""
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


@pytest.mark.parametrize(
    ("script", "expected"),
    [("play_the_riddle.py", "+0.740741"), ("pettingzoo_world.py", "20 episodes, 500 steps")],
)
def test_example_runs_and_prints_its_number(script, expected, tmp_path):
    assert expected in run(ROOT / "examples" / script, cwd=tmp_path)


# What training reaches depends on the seed and on the last bit of a sum: the bounds leave room for bad luck.
@pytest.mark.parametrize(
    ("script", "pattern", "least"),
    [
        ("train_a_team.py", r"after: ([+-]\d\.\d+); the best team earns \+0\.4444", 0.37),
        ("your_own_world.py", r"steps: exact (\d\.\d+), best 1\.0000", 0.66),
    ],
)
def test_example_trains_a_team_far_better_than_random(script, pattern, least, tmp_path):
    assert number(pattern, run(ROOT / "examples" / script, cwd=tmp_path)) >= least


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("README.md", "best possible:   0.4444444444444444"),
        ("docs/design.md", "0.7500"),
        ("docs/worlds.md", "0.740741"),
        ("docs/runs.md", "wrote 2 real steps"),
    ],
)
def test_python_blocks_of_the_documents_run(document, expected, tmp_path):
    found = BLOCK.findall((ROOT / document).read_text())
    blocks = [code for not_run, code in found if not not_run]
    assert blocks
    (tmp_path / "blocks.py").write_text("\n\n".join(blocks))
    assert expected in run("blocks.py", cwd=tmp_path)
