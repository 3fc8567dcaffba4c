"""Checks of the service while it runs, and of the proxy before it: TLS, readiness, `/metrics`, the largest body."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from muniment.operate.doctor.findings import Finding, fail, ok, warn
from muniment.operate.http_request import Answer, ask, detail_of
from muniment.protocol.errors import InvalidJson
from muniment.protocol.evm.sign_in import is_loopback
from muniment.protocol.json_text import parse_json
from muniment.service.running.limits.limiter import PROXY_NOTE
from muniment.service.running.settings import BARE_NONCES_NOTE, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.operate.doctor.findings import Examined

# For all requests, which leaves a second of the examination.
SECONDS_MAX: Final = 6.0
# The largest module with its form.
BODY_BYTES: Final = 17 * MIB
TLS_DAYS_WARN: Final = 21
TLS_DAYS_FAIL: Final = 7
_PIECE: Final = bytes(64 * 1024)
_BOUNDARY: Final = "muniment-doctor"

# For the notes of the service.
NOTES_SECONDS_MAX: Final = 2.0

Ask = Callable[..., Answer]


def check_proxies(examined: Examined, *, send: Ask = ask) -> Finding:
    """Whether `trusted_proxies` has all proxies that forward requests, and not every address."""
    settings, url = examined.settings, examined.url
    if any(network.prefixlen == 0 for network in settings.proxies):
        return fail("trusted_proxies has every address: a client can name any address as its own",
            "name only the networks of your proxies",
        )  # fmt: skip
    if PROXY_NOTE in _notes(url or settings.own_url, send):
        return warn(PROXY_NOTE,
            "if it is your proxy, name its network in MUNIMENT_TRUSTED_PROXIES and restart; the log of the service has "
            "its address",
        )  # fmt: skip
    if not settings.proxies and (settings.listens_beyond_this_machine or url.startswith("https:")):
        return warn("trusted_proxies is empty: behind a proxy all clients share one address and one rate limit",
            "name the network of your proxy in MUNIMENT_TRUSTED_PROXIES",
        )  # fmt: skip
    return ok(settings.trusted_proxies or "none")


def check_logins(examined: Examined) -> Finding:
    """Whether log-ins name this registry."""
    settings = examined.settings
    if settings.takes_relayed_nonces:
        return warn(BARE_NONCES_NOTE, "set MUNIMENT_BARE_NONCES=false once all clients sign words")
    if settings.public_url:
        return ok("in words")
    if settings.listens_beyond_this_machine or examined.url.startswith("https:"):
        return warn("public_url is empty: log-ins sign a bare nonce, which our clients refuse for other machines",
            "set MUNIMENT_PUBLIC_URL to the URL at which users reach the service",
        )  # fmt: skip
    return ok("by a bare nonce, on this machine")


def _notes(base: str, send: Ask) -> list[str]:
    """The notes of the service at `base`; none if no service answers there."""
    try:
        answer = parse_json(send(f"{base.rstrip('/')}/readyz", seconds_max=NOTES_SECONDS_MAX).body)
        return list(map(str, answer["notes"]))
    except (OSError, ValueError, InvalidJson, KeyError, TypeError):
        return []


def check_service(examined: Examined, *, send: Ask = ask) -> list[Finding]:
    """The findings at the URL for clients. The requests change nothing; `send` sends one of them."""
    base, deadline = examined.url.rstrip("/"), time.monotonic() + SECONDS_MAX

    def send_in_time(path: str, **given: object) -> Answer:
        return send(base + path, seconds_max=max(deadline - time.monotonic(), 0.1), **given)

    try:
        ready = send_in_time("/readyz")
    except ssl.SSLCertVerificationError as error:
        return [fail(error.verify_message, "renew the certificate of the proxy, with its whole chain", check="TLS")]
    except (OSError, ValueError) as error:
        return [fail(f"it does not answer: {error}", "check the proxy, the DNS name and the service")]
    # The largest body comes last, because it may be slow.
    return [
        _judge_ready(ready), _judge_tls(base, ready, examined.now_s), _check_metrics(base, send_in_time),
        _check_body(send_in_time),
    ]  # fmt: skip


def _judge_ready(answer: Answer) -> Finding:
    if answer.status == HTTPStatus.OK:
        return ok("it is ready")
    return fail(f"/readyz answers {answer.status}: {detail_of(answer)}", "see docs/run/running.md")


def _judge_tls(base: str, answer: Answer, now_s: float) -> Finding:
    if answer.certificate_until_s is None:
        if is_loopback(base):
            return ok("not needed on this machine", check="TLS")
        return fail("API keys and tokens cross the network in clear text", "put a proxy with TLS in front", check="TLS")
    days = (answer.certificate_until_s - now_s) / 86_400
    shown, remedy = f"the certificate is good for {days:.0f} days", "find out why the proxy does not renew it"
    if days < TLS_DAYS_FAIL:
        return fail(shown, remedy, check="TLS")
    return warn(shown, remedy, check="TLS") if days < TLS_DAYS_WARN else ok(shown, check="TLS")


def _check_metrics(base: str, send: Ask) -> Finding:
    try:
        answer = send("/metrics")
    except OSError as error:
        return warn(f"/metrics does not answer: {error}", "look at the proxy", check="metrics")
    if answer.status == HTTPStatus.OK and not is_loopback(base):
        return fail("anyone can read /metrics", "let the proxy answer 404 for this path", check="metrics")
    return ok("shown on this machine" if answer.status == HTTPStatus.OK else "hidden", check="metrics")


def _check_body(send: Ask) -> Finding:
    headers = {
        "content-type": f"multipart/form-data; boundary={_BOUNDARY}", "content-length": str(BODY_BYTES),
    }  # fmt: skip
    remedy = "raise the limit of the proxy to 17 MiB (nginx: client_max_body_size 17m)"
    try:
        answer = send("/functions", method="POST", pieces=_pieces(), headers=headers)
    except OSError as error:
        return warn(f"a body of 17 MiB got no answer: {error}", remedy, check="body limit")
    if answer.status == HTTPStatus.UNAUTHORIZED:  # the service refuses it before it reads the bundle
        return ok("bodies of 17 MiB arrive", check="body limit")
    if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return fail("a body of 17 MiB is refused: large functions cannot be uploaded", remedy, check="body limit")
    return warn(f"a body of 17 MiB without a key gets {answer.status}, not 401", remedy, check="body limit")


def _pieces() -> Iterator[bytes]:
    for _ in range(BODY_BYTES // len(_PIECE)):
        yield _PIECE
