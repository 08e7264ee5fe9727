"""The settings of the service.

- `table`    the one table of settings
- `sources`  flags, environment variables and the TOML file
"""

from gnomon.service.settings.sources import name_and_path
from gnomon.service.settings.table import Settings, load_settings

__all__ = [
    "Settings",
    "load_settings",
    "name_and_path",
]
