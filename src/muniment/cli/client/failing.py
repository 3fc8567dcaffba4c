"""Errors of commands that use a service: one line, the next step, and an exit status for scripts."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from muniment.cli.output import printable

if TYPE_CHECKING:
    from muniment.errors import Refusal

# The exit statuses; 2 is click's own for a wrong usage.
REFUSED: Final = 1
NEEDS_LOGIN: Final = 3
TRY_AGAIN: Final = 4
FORGED: Final = 5
# The next step after a refusal, by code.
_NEXT: Final = {
    "unknown-function": "deploy it here first: `muniment deploy DIR`",
    "function-not-found": "`muniment functions list` shows the functions of this registry",
    "trigger-not-found": "`muniment triggers list` shows the triggers of this registry",
    "intent-not-found": "`muniment intents list` shows the intents of this registry",
    "signature-mismatch": "was it signed for this registry's protocol name? See --protocol",
    "version-taken": "use a higher version in the manifest",
    "trigger-deactivated": "its owner ended it for ever: sign a new trigger with another version",
    "cursor-too-old": "start over: remove the position file",
    "not-the-owner": "only the wallet that signed a trigger ends it: see --signer",
    "status-conflict": "`muniment intents show HASH` shows the present status",
    "unknown-path": "does a registry answer at this URL? See --url",
    "conflicting-credentials": "unset MUNIMENT_API_KEY or MUNIMENT_OPERATOR_KEY",
}
_MORE: Final = {
    "too-many-logins": "; or log in once for many commands: export MUNIMENT_API_KEY=$(muniment api-key)",
}
_LOGIN: Final = "run `muniment login`"


class FailedError(click.ClickException):
    """The service refused what the command asked for."""

    exit_code = REFUSED


class UsageFailedError(FailedError):
    """A wrong file or value: the status of a wrong usage."""

    exit_code = 2


class NeedsLoginError(FailedError):
    """A wallet or a credential is missing, or not accepted."""

    exit_code = NEEDS_LOGIN


class TryAgainError(FailedError):
    """The same command may succeed later."""

    exit_code = TRY_AGAIN


class ForgedError(FailedError):
    """The service gave an answer that is not true."""

    exit_code = FORGED


@contextmanager
def failures() -> Generator[None]:
    """Turn errors of the client into the message and the exit status of a command."""
    from muniment.client.failures import CannotSign, Forged, NotSignedBy, Unreachable
    from muniment.errors import Refusal

    try:
        yield
    except BrokenPipeError:  # click ends silently: the reader of the output has gone
        raise
    except Forged as error:
        text = f"FORGED: {printable(str(error))}\nThe service is faulty or dishonest. Do not act on its answers."
        raise ForgedError(text) from error
    except Unreachable as error:
        doubt = " The request may have arrived." if error.sent else ""
        raise TryAgainError(f"{printable(str(error))}.{doubt} Try again, or see --url") from error
    except Refusal as error:
        raise _refused(error) from error
    except NotSignedBy as error:
        raise FailedError(f"{error}: is it the wallet of this profile? See --signer") from error
    except CannotSign as error:
        raise FailedError(printable(str(error))) from error
    except ImportError as error:
        if error.name is not None:  # a module of this package
            raise
        text = "the environment names a SOCKS proxy (ALL_PROXY, HTTPS_PROXY): unset it, or name an HTTP proxy"
        raise UsageFailedError(text) from error
    except (ValueError, OSError) as error:
        raise UsageFailedError(printable(str(error))) from error


def _refused(refusal: Refusal) -> FailedError:
    from muniment import errors

    lines = [printable(f"{refusal.code}: {refusal.detail}" if refusal.code else refusal.detail)]
    for fault in refusal.faults:
        if fault.detail in refusal.detail:
            continue
        where = fault.pointer or fault.parameter or ""
        lines.append(printable(f"  {where}: {fault.detail}" if where else f"  {fault.detail}"))
    reply = refusal.answer
    if reply is not None and not refusal.code:
        # A page of a proxy, or an answer of another program.
        kind, step = TryAgainError, "try again, or see --url: this answer is not by a registry"
    elif isinstance(refusal, errors.Unauthenticated | errors.Forbidden):
        kind, step = NeedsLoginError, _LOGIN
    elif isinstance(refusal, errors.Limited | errors.Unavailable):
        asked = "" if reply is None else reply.headers.get("retry-after", "")
        kind, step = TryAgainError, f"try again in {asked} seconds" if asked.isdigit() else "try again"
        step += _MORE.get(refusal.code, "")
    else:
        # Without an answer, the client itself found a value wrong.
        kind, step = UsageFailedError if reply is None else FailedError, _NEXT.get(refusal.code, "")
    if step:
        lines.append(f"Next: {step}")
    if reply is not None and (request_id := reply.headers.get("x-request-id")):
        lines.append(printable(f"Request id: {request_id}"))
    return kind("\n".join(lines))
