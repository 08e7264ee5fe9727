"""Values of settings: read from the text of a flag or a variable, named and shown in errors."""

import json
import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic.fields import FieldInfo

SHOWN_CHARACTERS = 100
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_FLAGS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def kind(field: FieldInfo) -> type:
    """int, float, bool, str, tuple (a list of texts) or dict (lists of texts by name)."""
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        [annotation] = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    found: type = get_origin(annotation) or annotation
    return found


def from_text(text: str, field: FieldInfo) -> Any:
    """The value that a text stands for. An invalid text is returned unchanged, and the table refuses it."""
    wanted = kind(field)
    if wanted is bool:
        return _FLAGS.get(text.strip().lower(), text)
    if wanted is int:
        return int(text) if _WHOLE.fullmatch(text.strip()) else text
    if wanted is float:
        return float(text) if _DECIMAL.fullmatch(text.strip()) else text
    if wanted is str:
        return text
    if wanted is tuple and not text.lstrip().startswith("["):
        return [one.strip() for one in text.split(",") if one.strip()] if text.strip() else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def expected(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    wanted = kind(field)
    if wanted is bool:
        return "true or false"
    if wanted is dict:
        return 'a list of columns for each index, like {"pages": ["url", "title"]}'
    if wanted is tuple:
        least = any(isinstance(bound, MinLen) for bound in field.metadata)
        return "a list of one text or more" if least else "a list of texts ([] for none)"
    if wanted is str:
        return extra(field)["expected"] or "a text that is not empty"
    return ("a whole number" if wanted is int else "a number") + _bounds(field)


def _bounds(field: FieldInfo) -> str:
    low = next((f" from {b.ge}" for b in field.metadata if isinstance(b, Ge)), "")
    low = next((f" above {b.gt}" for b in field.metadata if isinstance(b, Gt)), low)
    high = next((str(b.le) for b in field.metadata if isinstance(b, Le)), "")
    if not high:
        return f"{low} on" if low.startswith(" from") else low
    return f"{low}{' to' if low.startswith(' from') else ', at most'} {high}"


def shown(value: object, secret: bool) -> str:
    """A value as an error shows it. A secret is not shown."""
    if secret:
        return "something else (not shown)"
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def extra(field: FieldInfo) -> Mapping[str, Any]:
    """The properties of a setting other than its type: its unit, and whether it is secret."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
