"""Removal of secrets from addresses."""

import re

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def without_secrets(text: str) -> str:
    """The text, with user and password removed from its URLs."""
    return _PASSWORD.sub("", text)
