"""Checks of the service as clients reach it, through its proxy: TLS, readiness, `/metrics`, the largest body."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muniment.maintenance.doctor.answers import Answer, ask, detail_of
from muniment.maintenance.doctor.daemon import in_daemon
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn
from muniment.settings import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS_MAX: Final = 6.0
# The largest module with its form.
BODY_BYTES: Final = 17 * MIB
TLS_DAYS_WARN: Final = 21
TLS_DAYS_FAIL: Final = 7
_PIECE: Final = bytes(64 * 1024)
_BOUNDARY: Final = "muniment-doctor"
_OK, _TOO_LARGE = 200, 413
# A service refuses an upload without a key before it reads the bundle.
_UNAUTHENTICATED: Final = 401

Ask = Callable[..., Answer]


async def check_front(url: str, *, now_s: float, send: Ask = ask, found: list[Finding] | None = None) -> list[Finding]:
    """The findings at the base URL `url`, which are appended to `found` one by one.

    None of the requests changes anything. `send` sends one request.
    """
    base, found = url.rstrip("/"), [] if found is None else found
    try:
        ready = await in_daemon(partial(send, f"{base}/readyz", seconds_max=SECONDS_MAX))
    except ssl.SSLCertVerificationError as error:
        found.append(fail("TLS", error.verify_message, "renew the certificate of the proxy, with its whole chain"))
        return found
    except (OSError, ValueError) as error:
        found.append(fail("service", f"it does not answer: {error}", "look at the proxy, the name and the service"))
        return found
    found += [_judge_ready(ready), _judge_tls(base, ready, now_s)]
    # The largest body may be slow on its way: it has the time that the others leave.
    found.append(await _check_metrics(base, send))
    found.append(await _check_body(base, send))
    return found


def _judge_ready(answer: Answer) -> Finding:
    if answer.status == _OK:
        return ok("service", "it is ready")
    return fail("service", f"/readyz answers {answer.status}: {detail_of(answer)}", "see docs/running.md")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _judge_tls(base: str, answer: Answer, now_s: float) -> Finding:
    if answer.certificate_until_s is None:
        if _is_loopback(base):
            return ok("TLS", "not needed on this machine")
        return fail("TLS", "API keys and tokens cross the network in clear text", "put a proxy with TLS in front")
    days = (answer.certificate_until_s - now_s) / 86_400
    shown, remedy = f"the certificate is good for {days:.0f} days", "look why the proxy does not renew it"
    if days < TLS_DAYS_FAIL:
        return fail("TLS", shown, remedy)
    return warn("TLS", shown, remedy) if days < TLS_DAYS_WARN else ok("TLS", shown)


async def _check_metrics(base: str, send: Ask) -> Finding:
    try:
        answer = await in_daemon(partial(send, f"{base}/metrics", seconds_max=SECONDS_MAX))
    except OSError as error:
        return warn("metrics", f"/metrics does not answer: {error}", "look at the proxy")
    if answer.status == _OK and not _is_loopback(base):
        return fail("metrics", "everybody can read /metrics", "let the proxy answer 404 for this path")
    return ok("metrics", "shown on this machine" if answer.status == _OK else "hidden")


async def _check_body(base: str, send: Ask) -> Finding:
    headers = {
        "content-type": f"multipart/form-data; boundary={_BOUNDARY}", "content-length": str(BODY_BYTES),
    }  # fmt: skip
    remedy = "raise the limit of the proxy to 17 MiB (nginx: client_max_body_size 17m)"
    upload = partial(
        send, f"{base}/functions", method="POST", pieces=_pieces(), headers=headers, seconds_max=SECONDS_MAX
    )
    try:
        answer = await in_daemon(upload)
    except OSError as error:
        return warn("body limit", f"a body of 17 MiB got no answer: {error}", remedy)
    if answer.status == _UNAUTHENTICATED:
        return ok("body limit", "bodies of 17 MiB arrive")
    if answer.status == _TOO_LARGE:
        return fail("body limit", "a body of 17 MiB is refused: large functions cannot be uploaded", remedy)
    return warn("body limit", f"a body of 17 MiB without a key is answered {answer.status}, not 401", remedy)


def _pieces() -> Iterator[bytes]:
    for _ in range(BODY_BYTES // len(_PIECE)):
        yield _PIECE
