"""Settings: each with a name, a working default, and one line of description.

They come, the first that is given, from a command-line flag, the environment (`MUNIMENT_NAME`, or
`MUNIMENT_NAME_FILE` for a file that holds the value), a TOML file (`--config`), the default.
"""

from muniment.service.running.settings.errors import SettingError as SettingError
from muniment.service.running.settings.loading import load_settings as load_settings
from muniment.service.running.settings.record import (
    MASK as MASK,
    MIB as MIB,
    PREFIX as PREFIX,
    Settings as Settings,
    variable as variable,
)
