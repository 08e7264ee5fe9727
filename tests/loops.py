"""The loops of `gnomon.base.kernel`, compiled and in Python, for tests of both."""

from types import SimpleNamespace
from typing import Any

import pytest

from gnomon.base import kernel

WAYS = ("python", "compiled")


def loops_of(way: str) -> SimpleNamespace:
    """The loops in Python, or the compiled ones; the test is skipped where these are not there."""
    if way == "python":
        return SimpleNamespace(**_named(kernel.TWINS.values()), RecordKeys=None)
    modules = [pytest.importorskip(name, reason="Gnomon was installed without a C compiler") for name in kernel.TWINS]
    return SimpleNamespace(**_named(modules), RecordKeys=modules[-1].RecordKeys)


def use(way: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Let Gnomon use these loops, where it does not import them by name."""
    chosen = loops_of(way)
    for name, loop in vars(chosen).items():
        monkeypatch.setattr(kernel, name, loop)
    return chosen


def _named(modules: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in kernel.NAMES for module in modules if hasattr(module, name)}
