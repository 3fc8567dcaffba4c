"""Values of the settings of rate limits."""

from __future__ import annotations

import pytest

from each_row import each_row
from muniment.service.running.limits.policies import Policy, parse_policy
from muniment.service.running.settings import SettingError, Settings


@each_row(("text", "quota", "window_s"), [("20000/20s", 20_000, 20), ("1/1h", 1, 3_600), ("600/1m", 600, 60)])
def test_a_policy_is_a_number_and_a_time(text: str, quota: int, window_s: int) -> None:
    assert parse_policy("client", text) == Policy("client", quota, window_s)


@each_row(
    "text",
    ["", "20000", "0/20s", "-1/20s", "20/0s", "20/20", "20/20d", "20/25h", " 20/20s", "20/20s\n", "٣/20s", "2e3/1s",
     "100001/1s", "9999999999/1h", "OFF", "20/99999999s", "1" * 5_000 + "/1s"],
)  # fmt: skip
def test_anything_else_is_refused_by_the_name_of_its_setting(text: str) -> None:
    with pytest.raises(SettingError, match="rate_limit_login: "):
        Settings(rate_limit_login=text)


def test_off_is_no_limit() -> None:
    settings = Settings(rate_limit_client="off")
    assert settings.rate_limits["client"] is None
    assert settings.rate_limits["stop"] == Policy("stop", 60, 60)


def test_exempt_networks_are_networks() -> None:
    networks = Settings(rate_limit_exempt="10.0.0.0/8, 2001:db8::/32").exempt_networks
    assert [str(network) for network in networks] == ["10.0.0.0/8", "2001:db8::/32"]
    with pytest.raises(SettingError, match="rate_limit_exempt: "):
        Settings(rate_limit_exempt="10.0.0.1/8")
