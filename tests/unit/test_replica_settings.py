"""The settings of replicas and proxies: read as lists, refused when they cannot be meant, passwords masked."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from each_row import each_row
from muniment.service.running.settings import SettingError, Settings

PRIMARY = "postgresql://u:hidden@primary/db"
READS = "postgresql://u:hidden@a:1,b:2/db?sslmode=require, postgres://u:hid,den@c/db,postgresql:///db?password=hidden"


def test_each_read_url_may_have_several_hosts() -> None:
    assert Settings(database_url=PRIMARY, database_read_urls=READS).read_urls == (
        "postgresql://u:hidden@a:1,b:2/db?sslmode=require", "postgres://u:hid,den@c/db",
        "postgresql:///db?password=hidden",
    )  # fmt: skip
    assert Settings().read_urls == ()


def test_every_password_of_read_urls_is_masked() -> None:
    settings = Settings(database_url=PRIMARY, database_read_urls=READS)
    shown = settings.shown()["database_read_urls"]
    assert shown == (
        "postgresql://u:********@a:1,b:2/db?sslmode=require,postgres://u:********@c/db,postgresql:///db?password=********"
    )
    assert "hid" not in repr(settings)


@each_row(
    ("primary", "reads"), [("sqlite:///muniment.db", PRIMARY), (PRIMARY, "sqlite:///other.db"), (PRIMARY, "hidden")]
)
def test_replicas_are_postgresql_beside_postgresql(primary: str, reads: str) -> None:
    with pytest.raises(SettingError, match="database_read_urls") as raised:
        Settings(database_url=primary, database_read_urls=reads)
    assert "hidden" not in str(raised.value)


def test_proxies_are_networks() -> None:
    proxies = Settings(trusted_proxies="10.0.0.0/8, ::1,192.0.2.7").proxies
    assert proxies == (ip_network("10.0.0.0/8"), ip_network("::1/128"), ip_network("192.0.2.7/32"))
    assert Settings().proxies == ()


@each_row("text", ["proxy", "10.0.0.1/8", "10.0.0.0/33", "*"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="trusted_proxies"):
        Settings(trusted_proxies=text)
