"""Finite Dec-POMDPs as tables: files, exact planning, Adapted R-MAX (Algorithm 2) and its theorem."""

import sys
from types import ModuleType
from typing import Any

from marco.environments.tabular import Tabular, tabular


class _Package(ModuleType):
    """The public function `marco.tabular(P, R, O, d0, ...)` has this package's name.

    Once a module of the package is imported, Python binds that name to the package: so it can be called.
    """

    def __call__(self, *arguments: Any, **settings: Any) -> Tabular:
        """A world from tables: see `marco.environments.tabular.tabular`."""
        return tabular(*arguments, **settings)


sys.modules[__name__].__class__ = _Package
