"""Asks a running service whether it is ready. A container's health check runs this often, so it imports little."""

from __future__ import annotations

from typing import Final

from muniment.maintenance.doctor.answers import ask, detail_of, without_login

SECONDS_MAX: Final = 5.0
_OK: Final = 200


def ping(url: str, *, path: str, seconds_max: float = SECONDS_MAX) -> str:
    """A line for people when the service at `url` answers 200 at `path`. Raises `OSError` otherwise."""
    base = without_login(url.rstrip("/"))
    try:
        answer = ask(f"{base}{path}", seconds_max=seconds_max)
    except OSError as error:
        raise OSError(f"{base} does not answer: {error}") from error
    if answer.status != _OK:
        raise OSError(f"{base}{path} answers {answer.status}: {detail_of(answer)}")
    return f"{base} is ready" if path == "/readyz" else f"{base} is alive"
