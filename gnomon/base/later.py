"""Modules that are imported when they are first used: what a look-up of one key does not need.

A file that uses one shows its import to readers, type checkers and tests/test_layers.py:

    if TYPE_CHECKING:
        from gnomon.sources import orc
    else:
        orc = Later("gnomon.sources.orc")
"""

import importlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


class Later:
    """A module that is imported at the first use of one of its names. Threads may use it at the same time."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._module), name)
        setattr(self, name, value)  # the next use is an ordinary attribute
        return value


def late(function: Callable[[], Callable[Given, Returned]]) -> Callable[Given, Returned]:
    """A function for a table: the one that `function` returns, which is first called when this one is."""

    def called(*given: Given.args, **named: Given.kwargs) -> Returned:
        return function()(*given, **named)

    return called
