"""The exit codes of commands."""

FOUND, NOT_FOUND, WRONG_USAGE, FAILED, UNCHECKED, INTERRUPTED = 0, 1, 2, 3, 4, 130
