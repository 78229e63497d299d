"""What is compiled once is kept on disk, so that a second start does not compile again."""

import os
from pathlib import Path


def keep_compiled() -> None:
    """Turn on JAX's persistent compilation cache, unless the user has chosen one."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ or getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "marco" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
