"""The settings of a relayer: a TOML file that says whom it serves, and within which limits.

[relayer]
registry = "https://registry.example"
operator_key_file = "operator.key"
signers = ["0x…"]
functions = ["Qm…"]
chains = [8453]
"""

from __future__ import annotations

import stat
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from muniment.client.flows.session import checked_url
from muniment.file_members import wrong_member
from muniment.protocol.errors import Refusal
from muniment.protocol.evm.address import Address
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.triggers.schedule import check_delta
from muniment.protocol.triggers.typed_data import EVENT
from muniment.text_files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muniment.protocol.triggers.types import Trigger

T = TypeVar("T")
ANY: Final = "*"
# A schedule of each minute has 1,440 runs a day, and some that are late.
RUNS_PER_TRIGGER_AND_DAY_MAX: Final = 1_500
INTENTS_PER_TRIGGER_AND_DAY_MAX: Final = 2_000
INTENTS_PER_DAY_MAX: Final = 50_000
EVENT_TRIGGERS_PER_SIGNER_MAX: Final = 100
EVENT_WINDOW_MAX: Final = "1d"
JOURNAL_BYTES_MAX: Final = 8 * 1024**3
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_LISTS: Final = ("signers", "functions", "chains")
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
# Digits of a uint256, as `executionFeeLimit` has them.
_Fee = Annotated[str, Meta(pattern=r"\A(0|[1-9][0-9]{0,77})\Z")]
# What may be written for each member of the file.
SAMPLES: Final = {
    "relayer": "a table [relayer] with registry, signers, functions and chains",
    "relayer.registry": 'registry = "https://registry.example.org", the URL of a registry',
    "relayer.operator_key_file": 'operator_key_file = "operator.key", a file beside this one',
    "relayer.state": 'state = "relayer.db", the file of the journal',
    "relayer.protocol": 'protocol = "Mimic", the name under which the registry\'s triggers are signed',
    "relayer.chains_file": 'chains_file = "chains.toml", a file beside this one',
    "relayer.signers": 'signers = ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"], a list of addresses, or ["*"]',
    "relayer.functions": 'functions = ["QmQWmG3opiSLrj9k5bGu3LZ8gkwUU6MxrinaSQr6rKv51V"], a list of CIDs, or ["*"]',
    "relayer.chains": 'chains = [8453], a list of chain ids, or ["*"]',
    "relayer.runs_per_trigger_and_day_max": f"a whole number from 1, such as {RUNS_PER_TRIGGER_AND_DAY_MAX}",
    "relayer.intents_per_trigger_and_day_max": f"a whole number from 1, such as {INTENTS_PER_TRIGGER_AND_DAY_MAX}",
    "relayer.intents_per_day_max": f"a whole number from 1, such as {INTENTS_PER_DAY_MAX}",
    "relayer.event_triggers_per_signer_max": f"a whole number from 1, such as {EVENT_TRIGGERS_PER_SIGNER_MAX}",
    "relayer.event_window_max": f'event_window_max = "{EVENT_WINDOW_MAX}", a span such as 15m, 6h or 1d',
    "relayer.journal_bytes_max": f"a whole number from 1, such as {JOURNAL_BYTES_MAX}",
    "relayer.health_port": "health_port = 9108, a port on 127.0.0.1; 0 takes a free one",
    "price": 'a table [price] with source = "chainlink", "api" or "off"',
    "price.source": 'source = "chainlink", "api" or "off"',
    "price.url": 'url = "https://coins.llama.fi", with source = "api"',
    "fees": 'a table [fees] with "*" or CIDs, such as "*" = "10000000000000000" for 0.01 US dollars a run',
}


class RelayerSettingError(ValueError):
    """A setting of a relayer is missing or unusable. The text names it and says what to write."""


class _Relayer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    registry: str
    operator_key_file: _Text | None = None
    state: _Text = "relayer.db"
    protocol: _Text = "Mimic"
    chains_file: _Text | None = None
    signers: list[str] = []
    functions: list[str] = []
    chains: list[int | str] = []
    runs_per_trigger_and_day_max: _Count = RUNS_PER_TRIGGER_AND_DAY_MAX
    intents_per_trigger_and_day_max: _Count = INTENTS_PER_TRIGGER_AND_DAY_MAX
    intents_per_day_max: _Count = INTENTS_PER_DAY_MAX
    event_triggers_per_signer_max: _Count = EVENT_TRIGGERS_PER_SIGNER_MAX
    event_window_max: _Text = EVENT_WINDOW_MAX
    journal_bytes_max: _Count = JOURNAL_BYTES_MAX
    health_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None


class _Price(msgspec.Struct, forbid_unknown_fields=True):
    source: Literal["chainlink", "api", "off"] = "chainlink"
    url: str = ""


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    relayer: _Relayer
    price: _Price = msgspec.field(default_factory=_Price)
    fees: dict[str, _Fee] = {}


@dataclass(frozen=True, slots=True)
class Served:
    """Whom a relayer serves. A list that is None is open to any."""

    signers: frozenset[Address] | None
    functions: frozenset[bytes] | None
    chains: frozenset[int] | None

    def refused(self, trigger: Trigger) -> str:
        """Why a trigger is not served; empty if it is. The text names the list."""
        if self.signers is not None and trigger.signer not in self.signers:
            return f"the signer {trigger.signer} is not in `signers`"
        if self.functions is not None and Cid.parse(trigger.function_cid).digest not in self.functions:
            return f"the function {trigger.function_cid} is not in `functions`"
        if trigger.config["type"] == EVENT and not self.has_chain(int(trigger.config["chainId"])):
            return f"the chain {trigger.config['chainId']} of its event is not in `chains`"
        return ""

    def has_chain(self, chain_id: int) -> bool:
        """Whether functions may read this chain and have intents for it."""
        return self.chains is None or chain_id in self.chains


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayerSettings:
    """The settings of a relayer. Paths are absolute, or relative to the working directory.

    `price_url` is the base URL of an API like DefiLlama's `coins`. `fees` are the prices of a run by the digest of its
    function, in the unit of `executionFeeLimit`; `fee` is that of any other function. `health_port` is None for a
    relayer without a port. Events run at most `event_window_max_ms` after their block. `exposed_key_file` is the file
    of the operator key, if other users of this machine can read or change it.
    """

    registry: str
    served: Served
    operator_key: str | None = field(default=None, repr=False)
    exposed_key_file: Path | None = None
    state: Path = Path("relayer.db")
    protocol: str = "Mimic"
    chains_file: Path | None = None
    runs_per_trigger_and_day_max: int = RUNS_PER_TRIGGER_AND_DAY_MAX
    intents_per_trigger_and_day_max: int = INTENTS_PER_TRIGGER_AND_DAY_MAX
    intents_per_day_max: int = INTENTS_PER_DAY_MAX
    event_triggers_per_signer_max: int = EVENT_TRIGGERS_PER_SIGNER_MAX
    event_window_max_ms: int = 1_000 * check_delta(EVENT_WINDOW_MAX)
    journal_bytes_max: int = JOURNAL_BYTES_MAX
    health_port: int | None = None
    price_source: Literal["chainlink", "api", "off"] = "chainlink"
    price_url: str = ""
    fee: int = 0
    fees: Mapping[bytes, int] = field(default_factory=dict[bytes, int])

    def fee_of(self, trigger: Trigger) -> int:
        """The price of a run of this trigger."""
        return self.fees.get(Cid.parse(trigger.function_cid).digest, self.fee)


def load_relayer_settings(path: Path, environ: Mapping[str, str], *, opens_all: bool = False) -> RelayerSettings:
    """The settings in a file. Paths in it are relative to it. Raises `RelayerSettingError`.

    The key is in the file that `operator_key_file` names, else in MUNIMENT_OPERATOR_KEY. With `opens_all` each list
    that the file does not set is open.
    """
    try:
        document = msgspec.convert(tomllib.loads(read_text(path)), _Document)
    except msgspec.ValidationError as error:
        raise RelayerSettingError(f"{path}: {wrong_member(error, SAMPLES)}") from None
    except OSError as error:
        raise RelayerSettingError(f"{path}: {error.strerror}; --config names the file of a relayer") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise RelayerSettingError(f"{path}: not TOML: {error}") from error
    try:
        settings = _settings(document, path.parent, opens_all=opens_all)
    except (Refusal, ValueError) as error:
        raise RelayerSettingError(f"{path}: {error}") from error
    if document.relayer.operator_key_file is None:
        return replace(settings, operator_key=environ.get("MUNIMENT_OPERATOR_KEY") or None)
    key_file = path.parent / document.relayer.operator_key_file
    key, is_exposed = _operator_key(key_file)
    # A copy that systemd made can be read by the service alone: its access list decides, and its mode shows the mask.
    is_credential = key_file.parent == Path(environ.get("CREDENTIALS_DIRECTORY", "/dev/null"))
    return replace(
        settings, operator_key=key, exposed_key_file=key_file if is_exposed and not is_credential else None
    )  # fmt: skip


def _settings(document: _Document, directory: Path, *, opens_all: bool) -> RelayerSettings:
    table = document.relayer
    if (document.price.source == "api") is not bool(document.price.url):
        raise ValueError('price.url is the base URL of a price API: it belongs to source = "api", and to no other')
    return RelayerSettings(
        registry=_registry(table.registry),
        served=_served(table, opens_all=opens_all),
        state=directory / table.state,
        protocol=table.protocol,
        chains_file=None if table.chains_file is None else directory / table.chains_file,
        runs_per_trigger_and_day_max=table.runs_per_trigger_and_day_max,
        intents_per_trigger_and_day_max=table.intents_per_trigger_and_day_max,
        intents_per_day_max=table.intents_per_day_max,
        event_triggers_per_signer_max=table.event_triggers_per_signer_max,
        event_window_max_ms=1_000 * check_delta(table.event_window_max),
        journal_bytes_max=table.journal_bytes_max,
        health_port=table.health_port,
        price_source=document.price.source,
        price_url=document.price.url,
        fee=int(document.fees.get(ANY, 0)),
        fees={_digest_of_fee(cid): int(fee) for cid, fee in document.fees.items() if cid != ANY},
    )


def _registry(url: str) -> str:
    try:
        return checked_url(url)
    except ValueError as error:
        raise ValueError(f"relayer.registry: {error}; write {SAMPLES['relayer.registry']}") from None


def _digest_of_fee(cid: str) -> bytes:
    try:
        return _digest(cid)
    except Refusal as refusal:
        raise ValueError(f"fees.{cid}: {refusal.detail}; write {SAMPLES['fees']}") from None


def _served(table: _Relayer, *, opens_all: bool) -> Served:
    missing = [name for name in _LISTS if not getattr(table, name)]
    if missing and not opens_all:
        raise ValueError(
            f'relayer.{missing[0]} is not set: name whom this relayer serves, or write {missing[0]} = ["*"] to serve '
            f"any ({', '.join(_LISTS)} must each be set; `--any` opens those that are not)"
        )
    return Served(
        _entries("signers", table.signers, Address.parse),
        _entries("functions", table.functions, _digest),
        _entries("chains", table.chains, _chain),
    )


def _entries(name: str, entries: Sequence[str | int], parse: Callable[[str], T]) -> frozenset[T] | None:
    """The entries of a list; None for one that is open: `["*"]`, or not set."""
    if not entries or ANY in entries:
        if len(entries) > 1:
            raise ValueError(f'relayer.{name} has "*" and other entries: "*" alone serves any')
        return None
    try:
        return frozenset(parse(str(each)) for each in entries)
    except (Refusal, ValueError) as error:
        raise ValueError(f"relayer.{name}: {error}; write {SAMPLES[f'relayer.{name}']}") from error


def _digest(text: str) -> bytes:
    return Cid.parse(text).digest


def _chain(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a chain id, such as 8453")
    return int(text)


def _operator_key(path: Path) -> tuple[str, bool]:
    """The key in a file, and whether its group or others can read or change it. Raises `RelayerSettingError`."""
    try:
        key, mode = read_text(path).strip(), path.stat().st_mode
    except (OSError, ValueError) as error:
        raise RelayerSettingError(
            f"relayer.operator_key_file cannot be read: {path}: {getattr(error, 'strerror', error)}"
        ) from error
    if not key:
        raise RelayerSettingError(f"relayer.operator_key_file: {path} is empty")
    return key, bool(mode & _OTHERS)
