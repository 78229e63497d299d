"""How programs are compiled, and where they are kept, so that a second start does not compile again."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import jax


def keep_compiled() -> None:
    """Turn on JAX's persistent compilation cache, unless the user has chosen one."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "marco" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def _options() -> dict[str, Any]:
    if jax.config.read("jax_disable_most_optimizations"):  # the user wants still less, for tests say
        return {}
    return {
        "xla_backend_optimization_level": 1,
        "xla_gpu_autotune_level": 0,
        "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    }


program = partial(jax.jit, compiler_options=_options())
"""`jax.jit` for the large programs of a run; they cannot be called within another.

On a CPU the code that LLVM makes of them at its first level is as fast as that of its third, and half of the
compilation is saved. On a GPU nothing is gained by trying kernels out, which takes a third to a half of the
compilation and may choose others, with other bits, the next time; and kernels that do not wait for each
other are launched side by side, which saves a tenth of an update (an H200; QMIX on `switch`, MAPPO on
`reference`).
"""

program_of_one_core = partial(jax.jit, compiler_options=_options() | {"xla_cpu_multi_thread_eigen": False})
"""The same for programs that run side by side on a CPU: each keeps to a core of its own."""
