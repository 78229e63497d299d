"""The examples, and the Python blocks of the documents, do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- not run[^\n]*\n)?```python\n(.*?)```", re.DOTALL)


def run(*arguments, cwd):
    """What a script printed; its exit status must be 0."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("play_the_riddle.py", "+0.740741"),
        ("train_a_team.py", "after: +0.4444; the best team earns +0.4444"),
        ("your_own_world.py", "exact 1.0000, best 1.0000"),
        ("pettingzoo_world.py", "20 episodes, 500 steps"),
    ],
)
def test_example_runs_and_prints_its_number(script, expected, tmp_path):
    assert expected in run(ROOT / "examples" / script, cwd=tmp_path)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("README.md", "0.4444444444444444"),
        ("docs/design.md", "0.7500"),
        ("docs/worlds.md", "0.740741"),
    ],
)
def test_python_blocks_of_the_documents_run(document, expected, tmp_path):
    found = BLOCK.findall((ROOT / document).read_text())
    blocks = [code for not_run, code in found if not not_run]
    assert blocks
    (tmp_path / "blocks.py").write_text("\n\n".join(blocks))
    assert expected in run("blocks.py", cwd=tmp_path)
