"""The error of a setting that cannot be used."""

from __future__ import annotations


class SettingError(Exception):
    """A setting is unusable: its name and the reason, never a secret value."""
