"""What is raised for a setting that cannot be used."""

from __future__ import annotations


class SettingError(Exception):
    """A setting cannot be read, with its name and the reason; never with a secret value."""
