"""Access control: bearer tokens, request rates and client addresses.

- `guard`   checks the token and the rate of each request, around all routes
- `tokens`  the tokens of a service
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
from gnomon.service.access.tokens import Tokens

__all__ = [
    "Guard",
    "GuardedApp",
    "Tokens",
    "asker_of",
    "charge_keys",
    "check_index",
    "is_page",
    "may_ask",
    "of_readiness",
]
