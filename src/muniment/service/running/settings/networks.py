"""Settings that are lists of networks."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

from muniment.service.running.settings.errors import SettingError


def networks_of(name: str, text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of the setting `name`, separated by commas. Raises `SettingError`."""
    try:
        return tuple(ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None
