"""Addresses as they may be shown."""

import re

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def without_secrets(text: str) -> str:
    """The text, its URLs without user and password."""
    return _PASSWORD.sub("", text)
