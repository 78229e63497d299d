"""What is compiled once is kept for the next run of the tests, and for the worker beside this one."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Tests compile much and run little: code that is compiled twice as fast is worth being slower.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Where they run for longer (see `optimised`), a little is better than all.
FLAGS = ["--xla_backend_optimization_level=1"]
if version("jaxlib").startswith("0.10."):  # a flag that is not known ends the process
    # The older generator of code, in one piece: a third less of the processor's time.
    FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
# Trees in two threads beside another worker of the tests wait for each other: six times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def optimised():
    """For modules whose programs run for longer than it takes to compile them."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process; what it printed, and its exit status."""
    from marco.cli import main

    def run_marco(*arguments):
        monkeypatch.setattr(sys, "argv", ["marco", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        try:
            main()
            status = 0
        except SystemExit as stop:
            status = stop.code
        captured = capsys.readouterr()
        return captured.out, captured.err, status

    return run_marco
