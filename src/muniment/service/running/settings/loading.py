"""Reads settings from command-line flags, the environment, a TOML file and the defaults."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, cast

from muniment.service.running.settings.errors import SettingError
from muniment.service.running.settings.record import Settings, variable

_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-[0-9]{1,2})?")
# Values of settings that were booleans in earlier releases.
_FORMER: Final = {"log_requests": {"true": "all", "false": "none"}}


def load_settings(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """The effective settings. Flags that are None and variables that are empty were not given.

    Raises `SettingError`, also for an unknown name in the file. Unknown names in the environment are ignored:
    orchestrators put their own variables there.
    """
    environ = os.environ if environ is None else environ
    values = _from_file(config) if config else {}
    values |= _from_environment(environ)
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    converted: dict[str, Any] = {name: _converted(name, value) for name, value in values.items()}
    return Settings(**converted)


def _from_file(config: Path) -> dict[str, object]:
    try:
        values = cast("dict[str, object]", tomllib.loads(config.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise SettingError(f"{config}: {error}") from error
    known = {each.name for each in fields(Settings)}
    for name in values:
        if name not in known:
            raise SettingError(f"{config}: there is no setting {name}")
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for each in fields(Settings):
        name = variable(each.name)
        if given := environ.get(name):
            values[each.name] = given
        elif path := environ.get(f"{name}_FILE"):
            try:
                values[each.name] = Path(path).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SettingError(f"{name}_FILE cannot be read: {type(error).__name__}") from error
            if not values[each.name]:
                raise SettingError(f"{name}_FILE is empty")
    return values


def _converted(name: str, value: object) -> object:
    kind = next(each.type for each in fields(Settings) if each.name == name)
    value = _FORMER.get(name, {}).get(str(value).lower(), value)
    if kind == "float":
        if not _NUMBER.fullmatch(str(value)):
            raise SettingError(f"{name} must be a number such as 0.01")
        return float(str(value))
    if kind == "bool":
        if str(value).lower() not in {"true", "false"}:
            raise SettingError(f"{name} must be true or false")
        return str(value).lower() == "true"
    if kind == "int":
        if not _INTEGER.fullmatch(str(value)):
            raise SettingError(f"{name} must be a whole number")
        return int(str(value))
    if not isinstance(value, (str, Path)):
        raise SettingError(f"{name} must be text")
    return Path(value).expanduser() if kind == "Path" else str(value)
