"""Optional dependencies: imported where they are used, and asked for by name when they are absent."""

from importlib import import_module
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra of MARCO brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} could not be imported ({error}): pip install 'marco-marl[{extra}]'", name=module
        ) from error
