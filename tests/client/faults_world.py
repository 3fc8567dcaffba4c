"""A service behind a proxy that breaks exchanges."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from facades_world import Calls, calls_of, signer

from middle import Answered, Asked, Behaviour, Forward, Middle, always, before, bytes_of
from service import Service

HTML = b"<html><h1>502 Bad Gateway</h1></html>"


@dataclass(frozen=True)
class Site:
    """A service behind a proxy, and the key of an operator."""

    middle: Middle
    key: str


@contextmanager
def faulty_site(directory: Path) -> Generator[Site]:
    """A service on a new directory, and the proxy."""
    with Service(directory / "data") as service, before(service.url) as middle:
        yield Site(middle, service.operator_key())


@contextmanager
def client(site: Site, facade: str, **given: Any) -> Generator[Calls]:
    calls = calls_of(facade, site.middle.url, **{"signer": signer(), "operator_key": site.key, **given})
    try:
        yield calls
    finally:
        calls.close()


FACADES = pytest.mark.parametrize("facade", ["sync", "aio"])


def refusing(status: int, retry_after: str = "", content: bytes = b"") -> Behaviour:
    headers = {"retry-after": retry_after} if retry_after else {}
    return always(Answered(status, headers, content))


def cut_before(asked: Asked, forward: Forward) -> None:
    """The connection ends before the service sees the request."""
    del asked, forward


def cut_after(asked: Asked, forward: Forward) -> None:
    """The service works on the request, and its answer is lost."""
    del asked
    forward()


def cut_within(asked: Asked, forward: Forward) -> list[bytes]:
    """Half of the answer comes."""
    del asked
    said = bytes_of(forward())
    return [said[: len(said) - 20]]


def garbage(asked: Asked, forward: Forward) -> list[bytes]:
    """An answer of another protocol."""
    del asked, forward
    return [b"SSH-2.0-OpenSSH_9.9\r\n\r\n"]


PASSING: dict[str, Behaviour] = {
    "503": refusing(503), "503 in seconds": refusing(503, "0"), "429 in seconds": refusing(429, "0"),
    "503 at a date": refusing(503, formatdate(1_700_000_000, usegmt=True)),
    "429 at a date": refusing(429, formatdate(1_700_000_000, usegmt=True)),
    "408": refusing(408), "504": refusing(504), "502 of a proxy": refusing(502, content=HTML),
    "cut before": cut_before, "cut after": cut_after, "cut within": cut_within, "garbage": garbage,
}  # fmt: skip


def at_first(fault: Behaviour, times: int) -> Behaviour:
    """A proxy that has a fault for its first requests."""
    left = [fault] * times
    return lambda asked, forward: left.pop()(asked, forward) if left else forward()
