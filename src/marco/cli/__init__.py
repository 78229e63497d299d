"""The command `marco`."""

import os
import sys
from pathlib import Path

import jax
import tyro

from marco.cli.evaluate import Evaluate, Model
from marco.cli.play import Play, Worlds
from marco.cli.rmax import Rmax
from marco.cli.solve import Bound, Solve
from marco.cli.train import Resume, Train
from marco.environments.base import WorldError


def _keep_compiled() -> None:
    """A second start must not compile again."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "marco" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def main() -> None:
    """Run the command; a user's mistake gives one line and exit status 2, not a traceback."""
    command = tyro.cli(
        Worlds | Play | Train | Resume | Evaluate | Model | Solve | Rmax | Bound,
        prog="marco",
        description="Learn a team's policy from few real interactions.",
    )
    _keep_compiled()
    sys.path.insert(0, "")  # a world of the user's own is looked for here first, as python itself does
    try:
        command.run()
    except (ValueError, ImportError, OSError, WorldError) as error:
        print(f"marco: {error}", file=sys.stderr)
        sys.exit(2)
