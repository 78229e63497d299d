"""What is compiled once is kept for the next run of the tests, and for the worker beside this one."""

import os
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Tests compile much and run little: code that is compiled twice as fast is worth being slower.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
