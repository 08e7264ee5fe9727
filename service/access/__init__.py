"""Access control: bearer tokens, request rates and client addresses.

- `guard`   checks the token and the rate of each request, around all routes
- `tokens`  bearer tokens
"""

from gnomon.service.access.guard import (
    Guard,
    GuardedApp,
    asker_of,
    charge_keys,
    check_index,
    is_page,
    may_ask,
    of_readiness,
)
from gnomon.service.access.tokens import Token, Tokens, new_token, parse_tokens

__all__ = [
    "Guard",
    "GuardedApp",
    "Token",
    "Tokens",
    "asker_of",
    "charge_keys",
    "check_index",
    "is_page",
    "may_ask",
    "new_token",
    "of_readiness",
    "parse_tokens",
]
