"""Failures of a client: no answer, an answer of another program, a forged one, a missing or foreign signature."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Unreachable(Exception):
    """No answer came. `sent`: the service may have received and carried out the request."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        """Say why; the text has no credential."""
        super().__init__(detail)
        self.sent = sent

    def __reduce__(self) -> tuple[object, ...]:
        """Keep `sent` in a pickle and a copy: for them `Exception` keeps positional arguments alone."""
        return partial(type(self), sent=self.sent), self.args, vars(self)


class NotARegistry(Exception):
    """An answer that no registry gives, such as a page of HTML or a redirect. The URL is wrong, or a proxy answers."""

    def __init__(self, detail: str) -> None:
        """Say what was answered: the text goes on after the URL. The driver sets the URL."""
        super().__init__(detail)
        self.url = "the service"

    def __str__(self) -> str:
        return f"{self.url} {self.args[0]}"


class Forged(Exception):
    """An answer contradicts the request, or its own signature, CID or hash. Do not use it."""


class NotUnderName(Forged):
    """A signature is not valid under the protocol name of this client: it is false, or the registry has another."""


class NotSignedBy(Exception):
    """A signer returned a signature of another address."""


class CannotSign(Exception):
    """No signature: the wallet refused, is unreachable, its password is wrong, or the text must not be signed."""


class Reply(NamedTuple):
    """An answer of any status. Names of header fields are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
