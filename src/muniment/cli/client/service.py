"""Commands that use a service: their options, the client, the position, and errors with a next step and a status."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from muniment.cli import output
from muniment.protocol.visible import visible

if TYPE_CHECKING:
    from muniment.client import Checkpoint, Registry
    from muniment.client.failures import Forged, NotARegistry, Unreachable
    from muniment.client.profiles import Profile
    from muniment.client.signers import Signer
    from muniment.protocol.errors import Refusal


# The exit statuses; 2 is click's own for a wrong usage.
REFUSED: Final = 1
NEEDS_LOGIN: Final = 3
TRY_AGAIN: Final = 4
FORGED: Final = 5
# The next step after a refusal, by code.
_NEXT: Final = {
    "unknown-function": "deploy it here first: `muniment deploy DIR`",
    "function-not-found": "`muniment functions list` shows the functions of this registry",
    "content-not-found": "`muniment functions list` shows the functions of this registry",
    "trigger-not-found": "`muniment triggers list` shows the triggers of this registry",
    "intent-not-found": "`muniment intents list` shows the intents of this registry",
    "execution-not-found": "`muniment runs list` shows the runs of this registry",
    "signature-mismatch": "was it signed for this registry's protocol name? See --protocol",
    "version-taken": "use a higher version in the manifest",
    "trigger-deactivated": "its owner deactivated it: sign a new trigger with another version",
    "cursor-too-old": "start over: remove the position file, or follow events with --reset",
    "not-the-owner": "only the wallet that signed it can deactivate it, under the name of this registry: see --wallet, "
    "--protocol",
    "status-conflict": "`muniment intents show HASH` shows the present status",
    "unknown-path": "does a registry answer at this URL? See --url",
    "conflicting-credentials": "unset MUNIMENT_API_KEY or MUNIMENT_OPERATOR_KEY",
}
_MORE: Final = {"too-many-logins": "; or log in once for many commands: export MUNIMENT_API_KEY=$(muniment api-key)"}
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
    from muniment.client.failures import CannotSign, Forged, NotARegistry, NotSignedBy, Unreachable
    from muniment.protocol.errors import Refusal

    try:
        yield
    except BrokenPipeError:  # click ends silently: the reader of the output has gone
        raise
    except Forged as error:
        raise ForgedError(f"FORGED: {visible(str(error))}\n{_judgement(error)}") from error
    except (NotARegistry, Unreachable) as error:
        raise TryAgainError(_unanswered(error)) from error
    except Refusal as error:
        raise _refused(error) from error
    except NotSignedBy as error:
        raise FailedError(f"{error}: is it the wallet of this profile? See --wallet") from error
    except CannotSign as error:
        raise FailedError(visible(str(error))) from error
    except ImportError as error:
        if error.name is not None:  # a module of this package
            raise
        text = "the environment names a SOCKS proxy (ALL_PROXY, HTTPS_PROXY): unset it, or name an HTTP proxy"
        raise UsageFailedError(text) from error
    except (ValueError, OSError) as error:
        raise UsageFailedError(visible(str(error))) from error


def _judgement(error: Forged) -> str:
    from muniment.client.failures import NotUnderName

    judgement = "The service is faulty or dishonest. Do not act on its answers."
    if isinstance(error, NotUnderName):
        return (
            "Was it signed under another name of this registry, or an earlier one? Give it with --protocol. If not: "
            f"{judgement}"
        )
    return judgement


def _unanswered(error: NotARegistry | Unreachable) -> str:
    """The message and the next step where no registry answered."""
    from muniment.client.failures import Unreachable

    said = visible(str(error))
    if isinstance(error, Unreachable):
        return f"{said}.{' The request may have arrived.' if error.sent else ''} Try again, or see --url"
    parts = urlsplit(error.url)
    origin = f", perhaps {parts.scheme}://{parts.netloc}" if parts.path else ""
    return (
        f"{said}: that is no registry\n"
        f"Next: give the URL of the registry itself{origin}: see --url. If it is right, a proxy answers: try again"
    )


def _refused(refusal: Refusal) -> FailedError:
    from muniment.protocol import errors

    lines = [visible(f"{refusal.code}: {refusal.detail}" if refusal.code else refusal.detail)]
    for fault in refusal.faults:
        shown = [fault.pointer or fault.parameter, None if fault.detail in refusal.detail else fault.detail]
        if any(shown):
            lines.append(visible(f"  {': '.join(filter(None, shown))}"))
    reply = refusal.answer
    if reply is not None and not refusal.code:
        # A page of a proxy, or an answer of another program.
        kind, step = TryAgainError, "try again, or see --url: this answer is not from a registry"
    elif isinstance(refusal, errors.Unauthenticated | errors.Forbidden):
        kind, step = NeedsLoginError, _NEXT.get(refusal.code, _LOGIN)
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
        lines.append(visible(f"Request id: {request_id}"))
    return kind("\n".join(lines))


Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_URL: Final = "http://127.0.0.1:8787"
DEFAULT_PROFILE: Final = "default"
_ADDRESS: Final = re.compile(r"(0[xX])?[0-9a-fA-F]{40}")
# An unreachable service is reported after at most four seconds.
TRIES: Final = 4
_NO_WALLET: Final = (
    "a wallet must sign this: set MUNIMENT_PRIVATE_KEY_FILE, or name a wallet with --wallet (keystore:NAME, rpc:URL, "
    "command:LINE, browser), or log in with `muniment login`"
)

_NO_OPERATOR_KEY: Final = (
    "operators write intents and runs: set MUNIMENT_OPERATOR_KEY to the key that `muniment operators add` printed"
)


def place_options(command: Command) -> Command:
    """Add the options that name a service."""
    profile = click.option("--profile", "-p", help="Name of a profile, as `muniment login` stores them.")
    url = click.option("--url", "-u", help=f"URL of the service; default: that of the profile, or {DEFAULT_URL}.")
    return url(profile(command))


def service_options(command: Command) -> Command:
    """Add the options of every command that uses a service, its records and a wallet."""
    for option in (
        click.option("--no-verify", is_flag=True, help="Trust the service: check no signature, CID or hash."),
        click.option("--protocol", help="Protocol name of the registry, which signatures depend on; default: Mimic."),
        click.option("--wallet", help="What signs: key, keystore:NAME, rpc:URL, command:LINE or browser."),
    ):
        command = option(command)
    return place_options(command)


def login_options(command: Command) -> Command:
    """Add the options of every command that logs in."""
    bare = "Sign a nonce without words, which could be that of another registry."
    return service_options(click.option("--bare-nonce", is_flag=True, help=bare)(command))


@dataclass(frozen=True, slots=True)
class Place:
    """A service, and the wallet with which it is used."""

    name: str
    profile: Profile
    # The wallet that signs, as `--wallet` names it; None: no option, variable or profile names one.
    wallet: str | None
    verifies: bool
    bare_nonce: bool = False


def place_of(flags: Mapping[str, Any], *, may_be_new: bool = False) -> Place:
    """The service that the options name; else the environment, else a profile, else this machine.

    Raises `ValueError` for an address in place of a wallet, and for an unknown profile, unless it `may_be_new`.
    """
    from muniment.client.profiles import Profile, Profiles

    named: str | None = flags["profile"] or os.environ.get("MUNIMENT_PROFILE") or None
    known = Profiles.of_user()
    profile = known.get(named) if named and not may_be_new else known.all().get(named or DEFAULT_PROFILE)
    profile = profile or Profile(DEFAULT_URL)
    # A profile that was named on the command line comes before a variable.
    is_chosen = flags["profile"] and not may_be_new
    url = flags["url"] or (None if is_chosen else os.environ.get("MUNIMENT_URL")) or profile.url
    protocol = flags.get("protocol") or os.environ.get("MUNIMENT_PROTOCOL_NAME") or profile.protocol
    named_wallet = flags.get("wallet") or (None if is_chosen else os.environ.get("MUNIMENT_WALLET")) or None
    wallet, address = _wallet(named_wallet, profile)
    return Place(
        named or DEFAULT_PROFILE, replace(profile, url=url, protocol=protocol, wallet=wallet, address=address), wallet,
        verifies=not flags.get("no_verify"), bare_nonce=bool(flags.get("bare_nonce")),
    )  # fmt: skip


def _wallet(given: str | None, profile: Profile) -> tuple[str | None, str | None]:
    """The wallet that signs, and its address if known without asking it."""
    from muniment.client.signers import KeySigner

    if given is not None and _ADDRESS.fullmatch(given):
        raise ValueError(
            f"{given} is an address, which cannot sign: --wallet and MUNIMENT_WALLET take key, keystore:NAME, rpc:URL, "
            "command:LINE or browser; to filter by who signed, use --signer ADDRESS"
        )
    has_key = bool(os.environ.get("MUNIMENT_PRIVATE_KEY") or os.environ.get("MUNIMENT_PRIVATE_KEY_FILE"))
    if given == "key" or (given is None and has_key):
        return "key", KeySigner.from_environment().address
    if given is not None:
        return given, profile.address if given == profile.wallet else None
    return None if profile.wallet == "key" else profile.wallet, profile.address


@contextmanager
def opened(flags: Mapping[str, Any], *, needs: str = "", **more: Any) -> Generator[Registry]:
    """The client of a command; its errors end the command as in `failures`.

    `needs` is `signature`, `token`, `key` (of the API) or `operator` for a command that requires it. A wallet is
    asked only without a stored credential.
    """
    with failures():
        if needs == "operator":
            needs = ""
            if not os.environ.get("MUNIMENT_OPERATOR_KEY"):
                raise NeedsLoginError(_NO_OPERATOR_KEY)
        place = place_of(flags)
        with connected(place, needs=needs, **more) as registry:
            yield registry


@contextmanager
def connected(
    place: Place, *, needs: str = "", signer: Signer | None = None, tries: int = TRIES, **more: Any
) -> Generator[Registry]:
    """The client of `place`; `more` are further parameters of `Registry`."""
    from muniment.client import Registry, Retry
    from muniment.client.profiles import Profiles

    profiles = Profiles.of_user()
    stored = profiles.credentials(place.profile)
    api_key = more.pop("api_key", None)
    # A command that prints the key asks the service: a stored key may be rotated, or of another service.
    if needs == "key":
        api_key = api_key or os.environ.get("MUNIMENT_API_KEY") or stored.get("apiKey")
    token = stored.get("token")
    has_credential = {"": True, "signature": False, "token": token is not None, "key": api_key is not None}[needs]
    if signer is None and (not has_credential or (needs and place.wallet == "key")):
        signer = signer_of_place(place)
    with Registry(
        place.profile.url, signer=signer, api_key=api_key, operator_key=os.environ.get("MUNIMENT_OPERATOR_KEY") or None,
        token=token, address=place.profile.address, protocol=place.profile.protocol, verify=place.verifies,
        retry=Retry(tries=tries), bare_nonce=place.bare_nonce, words=profiles.words, **more,
    ) as registry:  # fmt: skip
        yield registry


def signer_of_place(place: Place) -> Signer:
    """The wallet of `place`. Raises `NeedsLoginError` when none is named."""
    from muniment.client import signer_of

    if place.wallet is None:
        raise NeedsLoginError(_NO_WALLET)
    return signer_of(place.wallet, address=place.profile.address)


def follow_options(command: Command) -> Command:
    """Add `--state`."""
    return click.option(
        "--state", type=click.Path(path_type=Path, dir_okay=False),
        help="File for the position, from which the next start continues.",
    )(command)  # fmt: skip


@contextmanager
def followed(
    flags: Mapping[str, Any], state: Path | None, about: Mapping[str, str | None]
) -> Generator[tuple[Registry, Checkpoint]]:
    """The client and the position of a command that follows `about`, until Ctrl-C or SIGTERM."""
    from muniment.client import Checkpoint

    stop = output.StopRequest()
    with failures(), stop.listening():
        place = place_of(flags)
        position = Checkpoint(state, url=place.profile.url, **about)
        try:
            # Showing a page and storing its position takes microseconds; a signal ends only the wait for the next page.
            with stop.waiting(), connected(place) as registry:
                yield registry, position
        except output.StoppedWhileWaiting:
            raise SystemExit(stop.status) from None
