"""The rate limit policies of the settings, quotas of units in a window of time; and their header fields.

No other module knows the syntax of the fields. It is that of draft-ietf-httpapi-ratelimit-headers-11, which is not an
RFC yet and may rename fields: `RateLimit-Policy` has the quota `q` and the window `w`, `RateLimit` the remaining units
`r` and the seconds `t` until all of the quota is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

# `client` counts units of an address (`limits.costs`); `login` and `stop` count log-ins and deactivations of an
# address; `owner` counts additions of a wallet: 1 for a new trigger, 10 for a new function; and those of an address,
# by their bytes.
Name = Literal["client", "login", "owner", "stop"]
NAMES: Final[tuple[Name, ...]] = ("client", "login", "owner", "stop")
NEW_TRIGGER: Final = 1
NEW_FUNCTION: Final = 10
# Bytes that an address adds for one unit. With 16 times the quota of a wallet it adds 1.8 GiB in an hour; that is what
# the units of a JSON body let it add too.
STORED_BYTES_PER_UNIT: Final = 32 * 1024

OFF: Final = "off"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}
_WINDOW_SECONDS_MAX: Final = 86_400
# A unit then drains in some hundred nanoseconds, so whole nanoseconds are exact enough for the widest bucket too.
_UNITS_PER_SECOND_MAX: Final = 100_000
_FORM: Final = re.compile(r"([1-9][0-9]{0,9})/([1-9][0-9]{0,4})([smh])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Policy:
    """`quota` units within `window_s` seconds; a client may use all of them in one moment."""

    name: str
    quota: int
    window_s: int

    @property
    def window_ns(self) -> int:
        """The window in nanoseconds."""
        return self.window_s * 1_000_000_000


def parse_policies(texts: Mapping[Name, str]) -> dict[Name, Policy | None]:
    """The policy of each name. Raises `ValueError`, whose text begins with the name."""
    policies: dict[Name, Policy | None] = {}
    for name, text in texts.items():
        try:
            policies[name] = parse_policy(name, text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return policies


def parse_policy(name: str, text: str) -> Policy | None:
    """The policy in `text`, such as `600/60s` (or m, h); None for `off`. Raises `ValueError`."""
    if text == OFF:
        return None
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"{text!r} is neither {OFF!r} nor a number and a time, like 600/60s, 10/1m or 3600/1h")
    quota, window_s = int(form[1]), int(form[2]) * _SECONDS[form[3]]
    if window_s > _WINDOW_SECONDS_MAX:
        raise ValueError(f"{text!r}: the time is at most a day (24h)")
    if quota > window_s * _UNITS_PER_SECOND_MAX:
        raise ValueError(f"{text!r}: more than {_UNITS_PER_SECOND_MAX:,} a second; use {OFF!r} for no limit")
    return Policy(name, quota, window_s)


Headers = tuple[tuple[bytes, bytes], ...]

# Levels of the remaining units; the line of each is made in advance.
LEVELS: Final = 64


def lines(policy: Policy, scale: int = 1) -> tuple[bytes, ...]:
    """Both fields as lines of a head, for each of 64 levels: the first after the first unit, the last without units.

    The remaining units are rounded down, the seconds until the whole quota is available up. `scale` multiplies the
    quota.
    """
    quota, window = policy.quota * scale, policy.window_s
    return tuple(
        b"ratelimit-policy: %b\r\nratelimit: %b\r\n"
        % (
            _policy(policy.name, quota, window),
            _left(policy.name, quota * (LEVELS - used) // LEVELS, -(-window * used // LEVELS)),
        )
        for used in range(1, LEVELS + 1)
    )


def refusal_facts(name: str, quota: int, window_s: int, retry_after_s: int) -> dict[str, Any]:
    """The further members of the problem document of a refusal. `violated-policies` is from the draft, section 5.1."""
    return {
        "policy": name,
        "quota": quota,
        "window": window_s,
        "retryAfter": retry_after_s,
        "violated-policies": [name],
    }


def refusal_headers(facts: Mapping[str, Any]) -> Headers:
    """The fields of a refusal with these facts. `Retry-After` and `t` are the same time, so neither is too early."""
    name, retry_after_s = facts["policy"], facts["retryAfter"]
    return (
        (b"retry-after", b"%d" % retry_after_s),
        (b"ratelimit-policy", _policy(name, facts["quota"], facts["window"])),
        (b"ratelimit", _left(name, 0, retry_after_s)),
    )


def _policy(name: str, quota: int, window_s: int) -> bytes:
    return b'"%b";q=%d;w=%d' % (name.encode(), quota, window_s)


def _left(name: str, left: int, seconds: int) -> bytes:
    return b'"%b";r=%d;t=%d' % (name.encode(), left, seconds)
