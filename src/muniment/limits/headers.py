"""The header fields of a rate limit, and nothing else knows their syntax.

As in draft-ietf-httpapi-ratelimit-headers-11, which is no RFC yet and may change names: `RateLimit-Policy` tells quota
`q` and window `w`, `RateLimit` what remains (`r`) and in how many seconds all of it is there again (`t`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.limits.policies import Policy

Headers = tuple[tuple[bytes, bytes], ...]

# Steps in which what remains is told: a line is made for each beforehand.
LEVELS: Final = 64


def lines(policy: Policy, scale: int = 1) -> tuple[bytes, ...]:
    """Both fields as lines of a head, for each of 64 levels: the first after the first unit, the last with none left.

    What remains is rounded down, the time until all of it is there again up. `scale` multiplies the quota.
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
    """What the problem document of a refusal says beside the usual. `violated-policies` is the draft's, section 5.1."""
    return {
        "policy": name,
        "quota": quota,
        "window": window_s,
        "retryAfter": retry_after_s,
        "violated-policies": [name],
    }


def refusal_headers(told: Mapping[str, Any]) -> Headers:
    """The fields of a refusal with these facts. `Retry-After` and `t` are the same time, so neither is too early."""
    name, retry_after_s = told["policy"], told["retryAfter"]
    return (
        (b"retry-after", b"%d" % retry_after_s),
        (b"ratelimit-policy", _policy(name, told["quota"], told["window"])),
        (b"ratelimit", _left(name, 0, retry_after_s)),
    )


def _policy(name: str, quota: int, window_s: int) -> bytes:
    return b'"%b";q=%d;w=%d' % (name.encode(), quota, window_s)


def _left(name: str, left: int, seconds: int) -> bytes:
    return b'"%b";r=%d;t=%d' % (name.encode(), left, seconds)
