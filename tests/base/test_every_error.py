"""Every error class of the product survives what a process pool, Spark and `copy` do to it."""

import builtins
import copy
import importlib
import inspect
import json
import multiprocessing
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import gnomon
from gnomon.base.errors import Action, GnomonError

pytestmark = pytest.mark.process

ROOMS = ("base", "btree", "sources", "shadow", "jobs", "indexer", "service", "commands")
# One module raises them for another, which turns them into an error with fields: they never reach a caller.
PRIVATE = {
    "BatchTooLarge",
    "BoundExceeded",
    "CorruptData",
    "CutShort",
    "Damage",
    "DecompressionError",
    "LimitExceeded",
    "Malformed",
    "Moved",
    "NeedsMemory",
    "NeedsPyarrow",
    "NeedsRecoding",
    "NoType",
    "NotExact",
    "OrcError",
    "OverlongVarint",
    "RangeRefused",
    "StageRunAgain",
    "ThriftError",
    "TooMany",
    "Unclear",
    "Unfit",
    "Unsupported",
    "WouldWait",
    "WrongPath",
}
FIELDS = {"path": "/lake/team: search/x", "offset": 4711, "column": "a", "expected": "1", "found": "2"}
VALUES = {str: "a text: with; signs", int: 7, object: "found", bool: True, Exception: ValueError("inner")}


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(gnomon.__path__, "gnomon."):
        yield module.name


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _classes() -> list[type[BaseException]]:
    for name in _modules():
        importlib.import_module(name)
    found = {kind for kind in _below(BaseException) if kind.__module__.split(".")[0] == "gnomon"}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


@pytest.fixture(scope="module", name="classes")
def every_class() -> list[type[BaseException]]:
    """Found by importing every module, which takes seconds, so not when tests are collected."""
    return _classes()


def _made(kind: type[BaseException]) -> BaseException:
    """An error of a class, each argument that its `__init__` takes given."""
    if kind.__init__ in (BaseException.__init__, Exception.__init__, ValueError.__init__):
        return kind("a text: with; signs")
    arguments: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments["members"] = {"key": 1}
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            arguments[name] = _argument(name, parameter.annotation)
    return kind(**arguments)


def _argument(name: str, annotation: Any) -> Any:
    if name == "action":
        return Action.BUILD_FULL
    if name in FIELDS:
        return FIELDS[name]
    return next((value for type_, value in VALUES.items() if annotation in (type_, type_ | None)), {1: (2, 3)})


def _raise(kind: type[BaseException], members: dict[str, Any], args: tuple[Any, ...]) -> None:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(members)
    raise error


def _same(found: BaseException, error: BaseException) -> bool:
    ours = {name: value for name, value in found.__dict__.items() if name != "__notes__"}
    return (type(found), str(found), ours) == (type(error), str(error), error.__dict__)


def test_the_walk_finds_the_classes_of_every_package(classes: list[type[BaseException]]) -> None:
    assert {kind.__module__.split(".")[1] for kind in classes} == {*ROOMS}


def test_every_error_that_leaves_its_package_has_fields(classes: list[type[BaseException]]) -> None:
    others = {kind.__name__ for kind in classes if not issubclass(kind, GnomonError)}
    assert {name for name in others if not name.startswith("_")} == PRIVATE


def test_no_two_errors_share_a_name(classes: list[type[BaseException]]) -> None:
    names = [kind.__name__ for kind in classes if issubclass(kind, GnomonError)]
    assert sorted(set(names)) == sorted(names)
    assert not set(names) & set(dir(builtins))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_every_error_survives_pickle_and_copies(
    classes: list[type[BaseException]], copied: Callable[[BaseException], BaseException]
) -> None:
    for kind in classes:
        error = _made(kind)
        assert _same(copied(error), error), kind


def test_every_error_with_fields_survives_json(classes: list[type[BaseException]]) -> None:
    for kind in classes:
        error = _made(kind)
        if isinstance(error, GnomonError):
            assert _same(GnomonError.from_json(json.loads(json.dumps(error.to_json()))), error), kind


def test_a_process_pool_hands_every_error_on(classes: list[type[BaseException]]) -> None:
    errors = [_made(kind) for kind in classes]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(_raise, type(error), error.__dict__, error.args) for error in errors]
        found = [one.exception(timeout=120) for one in waiting]
    assert [str(one) for one in found] == [str(error) for error in errors]
    assert all(one is not None and _same(one, error) for one, error in zip(found, errors, strict=True))
