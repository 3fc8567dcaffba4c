"""The header fields of a rate limit. No other module knows their syntax.

As in draft-ietf-httpapi-ratelimit-headers-11, which is not an RFC yet and may rename fields: `RateLimit-Policy` has the
quota `q` and the window `w`, `RateLimit` the remaining units `r` and the seconds `t` until all of the quota is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.service.running.limits.policies import Policy

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
