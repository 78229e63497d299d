"""Compiled programs side by side: one of them uses little more than one of a CPU's cores."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

Item = TypeVar("Item")


def side_by_side(function: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """What the function gives for each item, worked out by as many threads as there are cores."""
    with ThreadPoolExecutor(max(1, min(len(items), cores()))) as threads:
        return list(threads.map(lambda item: jax.block_until_ready(function(item)), items))


def cores() -> int:
    """How many threads can work at once."""
    return os.cpu_count() or 1
