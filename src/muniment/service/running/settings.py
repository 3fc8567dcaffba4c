"""Settings: each with a name, a working default, and one line of description.

They come, the first that is given, from a command-line flag, the environment (`MUNIMENT_NAME`, or
`MUNIMENT_NAME_FILE` for a file that holds the value), a TOML file (`--config`), the default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from muniment.protocol.evm.sign_in import is_loopback, is_uri
from muniment.service.running.limits.policies import NAMES as POLICY_NAMES, parse_policies
from muniment.service.running.removed import REMOVED, refusal_text, value_refusal_text
from muniment.text_files import read_text

if TYPE_CHECKING:
    from muniment.service.running.limits.policies import Name as PolicyName, Policy


class SettingError(Exception):
    """A setting is unusable: its name and the reason, never a secret value."""


MASK: Final = "********"
# In a URL: after the user's name (RFC 3986 section 3.2.1; up to the last @, for one that was not escaped), or as a
# parameter, where PostgreSQL's drivers look too.
_PASSWORD: Final = re.compile(r"(://[^:/@]*:).*(?=@)|(password=)[^&]*")


def without_password(text: str) -> str:
    """The text with its passwords masked."""
    return _PASSWORD.sub(rf"\g<1>\g<2>{MASK}", text)


def is_postgresql(url: str) -> bool:
    """Whether this is the URL of a PostgreSQL."""
    return url.startswith(("postgresql://", "postgres://"))


def is_base_url(url: str) -> bool:
    """Whether paths can be appended to this URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        return False
    is_plain = is_uri(url) and not {"@", "?", "#"} & set(url)
    return is_plain and parts.scheme in {"http", "https"} and bool(parts.hostname)


def without_path(url: str) -> str:
    """Scheme and host alone: paid price APIs and collectors have their keys in the path or the query."""
    parts = urlsplit(url)
    hidden = f"/{MASK}" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{hidden}" if url else ""


def networks_of(name: str, text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of the setting `name`, separated by commas. Raises `SettingError`."""
    try:
        return tuple(ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None


# A part of URLs and of names of keys (c2sp.org/signed-note), which have no space and no plus.
_LOG_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:/-]{0,199}", re.ASCII)
_LOG_KEY: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


def tlog_fault(name: str, keys: tuple[str, str], policy: str, *, is_required: bool) -> str | None:
    """The fault of the log's settings, or None. `keys`: the current and the next one."""
    key, next_key = keys
    if name and not _LOG_NAME.fullmatch(name):
        return "tlog_name has at most 200 letters, digits and . - _ ~ / : and begins with a letter or a digit"
    if key and not _LOG_KEY.fullmatch(key):
        return "tlog_key must be 64 hex digits"
    if next_key and (not _LOG_KEY.fullmatch(next_key) or next_key.lower() == key.lower()):
        return "tlog_key_next must be 64 hex digits, and not tlog_key"
    if is_required and not policy:
        return "tlog_witness_required needs a tlog_policy, which names the witnesses"
    return None


PREFIX: Final = "MUNIMENT_"
MIB: Final = 2**20


def _setting(
    default: object, about: str, *, secret: bool = False, at_least: int | None = None, at_most: int | None = None
) -> Any:
    return field(default=default, metadata={"about": about, "secret": secret, "at_least": at_least, "at_most": at_most})


# What `bare_nonces` means with a `public_url`, for the operator.
BARE_NONCES_NOTE: Final = (
    "log-ins may sign the nonce without words, as existing clients do: another registry could pass on such a nonce and "
    "log in here as the wallet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a registry."""

    data_dir: Path = _setting(Path("data"), "Directory of the SQLite file, the blocks and the embedded secrets")
    database_url: str = _setting(
        "sqlite:///muniment.db", "Database; a relative SQLite path is inside the data directory"
    )
    database_read_urls: str = _setting(
        "",
        "Streaming replicas of PostgreSQL that answer lists, feed and console: comma-separated URLs of one server each",
    )
    replica_lag_s_max: int = _setting(
        5, "Largest age in seconds of data from a replica; replicas serve as long without the primary", at_least=1
    )
    blocks_url: str = _setting(
        "",
        "Place of the blocks of bundles: file: (in the data directory), file:///path, s3://bucket/prefix, or "
        "database:; empty: file: with SQLite, database: with PostgreSQL",
    )
    migrate_at_start: str = _setting(
        "auto",
        "true: serve applies missing migrations; false: only `muniment migrate` does; "
        "auto: true on SQLite, false on PostgreSQL",
    )
    host: str = _setting("127.0.0.1", "Address or name to listen on; :: is every address, of IPv4 too")
    port: int = _setting(8787, "Port to listen on; 0: any free port", at_least=0, at_most=65_535)
    trusted_proxies: str = _setting(
        "", "Trusted proxy networks, comma-separated, like 10.0.0.0/8; empty: no address in `X-Forwarded-For` counts"
    )
    metrics_from: str = _setting(
        "127.0.0.0/8, ::1/128",
        "Networks that may read GET /metrics, comma-separated; for others, and through a proxy, it is 404",
    )
    rate_limit_client: str = _setting(
        "20000/20s", "Units per address (IPv6: per /64) and time; a unit is about one read of 25 µs. off: no limit"
    )
    rate_limit_login: str = _setting("600/60s", "Logins and nonces per address and time; off: no limit")
    rate_limit_owner: str = _setting(
        "3600/1h",
        "Additions per wallet and time: a new trigger counts 1, a new function 10; 16 times as many per address, each "
        "for 32 KiB of new functions; off: no limit",
    )
    rate_limit_stop: str = _setting("60/60s", "Deactivations per address and time; off: no limit")
    rate_limit_exempt: str = _setting("", "Networks without rate limits, comma-separated, like 10.0.0.0/8")
    secret: str = _setting(
        "",
        "Secrets, newest first, comma-separated, 64 hex digits each; empty: a file in the data directory",
        secret=True,
    )
    protocol_name: str = _setting("Mimic", "First word of the EIP-712 domain `<name> Protocol - Registry`")
    public_url: str = _setting("", "URL for users, named in the text that they sign to log in; empty: a bare nonce")
    bare_nonces: bool = _setting(
        True, "With `public_url`: whether log-ins may sign the nonce without words, as existing clients do"
    )
    issuer: str = _setting("muniment", "`iss` and `aud` of login tokens")
    token_lifetime_s: int = _setting(86_400, "Lifetime of a login token in seconds", at_least=60)
    unixfs_profile: str = _setting(
        "unixfs-v0-2015", "UnixFS profile for the CIDs of new bundles: unixfs-v0-2015 or unixfs-v1-2025"
    )
    chains_file: str = _setting("", "TOML file with the chains' RPC URLs and changes to the catalogue of chains")
    price_api_url: str = _setting(
        "", "Base URL of a price API in the format of DefiLlama's `coins`; empty: no price API"
    )
    prices_file: str = _setting(
        "", "TOML or JSON file of fixed prices, `chainId:address` to US dollars; used after price feeds, before the API"
    )
    balances_timeout_s: int = _setting(5, "Timeout of GET /users/tokens in seconds", at_least=1)
    settlement_grace_s: int = _setting(
        3_600, "Seconds from the deadline of a submitted intent until it is expired", at_least=0
    )
    confirmations: int = _setting(
        3, "Confirmations before a block is read; can be overridden per chain",
        at_least=0, at_most=10_000,
    )  # fmt: skip
    allow_private_networks: bool = _setting(
        False, "true: RPC nodes and token lists at private and loopback addresses are allowed; for development"
    )
    console: bool = _setting(True, "Pages for people at /console; false: their paths are 404")
    console_notice: str = _setting("", "Line above every page of the console, such as `Test data`; empty: none")
    feed: str = _setting("on", "The change feed; off: its operations are 404; events are still stored")
    feed_days: int = _setting(30, "Days for which the change feed keeps its events", at_least=1, at_most=3_650)
    runs_keep_days: int = _setting(
        90, "Days for which runs that made no intents are kept", at_least=1, at_most=3_650
    )  # fmt: skip
    webhooks: str = _setting("on", "Webhooks of operators; off: their operations are 404, and nothing is delivered")
    tlog_name: str = _setting("", "Name of the transparency log, like registry.example.org, for good; empty: no log")
    tlog_key: str = _setting(
        "",
        "Secret of the log, 64 hex digits; empty: on SQLite a file, on PostgreSQL this process never signs",
        secret=True,
    )
    tlog_key_next: str = _setting("", "The secret for `muniment tlog rotate`; empty: on SQLite a new one", secret=True)
    tlog_interval_s: int = _setting(2, "Seconds between polls for facts to log", at_least=1)
    tlog_policy: str = _setting(
        "", "File in the tlog-policy format: the witnesses that cosign checkpoints, with their URLs; empty: none"
    )
    tlog_witness_required: bool = _setting(False, "true: a checkpoint without the quorum of the witnesses is held back")
    body_bytes_max: int = _setting(256 * 1024, "Largest JSON body", at_least=1024)
    trigger_bytes_max: int = _setting(128 * 1024, "Largest body of POST /triggers for a new trigger", at_least=8192)
    manifest_bytes_max: int = _setting(256 * 1024, "Largest manifest.json", at_least=1024)
    # The clients take no larger file from a registry.
    wasm_bytes_max: int = _setting(16 * MIB, "Largest function.wasm", at_least=1024, at_most=64 * MIB)
    body_timeout_s: int = _setting(
        30, "Timeout in seconds for the head of a request, and again for its body", at_least=1
    )
    connections_max: int = _setting(
        0, "Most connections of one process; 0: as many as its file descriptors allow, at most 8192", at_least=0
    )
    feed_streams_max: int = _setting(
        1_000, "Most streams of the change feed, with its waiting polls, of one process", at_least=0
    )
    feed_streams_per_client_max: int = _setting(
        20, "The same per address (IPv6: per /64, 4 times per /48), but for a proxy not in trusted_proxies", at_least=0
    )
    shutdown_delay_s: int = _setting(0, "Seconds after SIGTERM with /readyz at 503 and the port open", at_least=0)
    shutdown_timeout_s: int = _setting(30, "Timeout in seconds at SIGTERM for running requests", at_least=1)
    log_format: str = _setting("console", "Format of the log on standard error: console or json")
    log_level: str = _setting("info", "Lowest level of the log: debug, info, warning or error")
    log_requests: str = _setting(
        "none", "Requests with a line in the log: none, slow, errors (500 and above) or all (this costs throughput)"
    )
    log_slow_ms: int = _setting(1_000, "Milliseconds from which a request is slow", at_least=1)
    trace_endpoint: str = _setting(
        "", "URL of an OpenTelemetry collector (OTLP over HTTP, usually port 4318); empty: no traces"
    )
    trace_ratio: float = _setting(
        0.0, "Share of the requests without `traceparent` that begin a trace, from 0 to 1", at_least=0, at_most=1
    )

    def __post_init__(self) -> None:
        """Raise `SettingError` for a value that cannot work."""
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise SettingError(value_refusal_text(name, value) or f"{name} must be one of {', '.join(choices)}")
        for each in fields(self):
            floor = each.metadata["at_least"]
            if floor is not None and getattr(self, each.name) < floor:
                raise SettingError(f"{each.name} must be at least {floor}")
            ceiling = each.metadata["at_most"]
            if ceiling is not None and getattr(self, each.name) > ceiling:
                raise SettingError(f"{each.name} must be at most {ceiling}")
        if self.read_urls and not all(is_postgresql(url) for url in (self.database_url, *self.read_urls)):
            raise SettingError("database_read_urls needs postgresql:// URLs, and a postgresql:// URL as database_url")
        self._check_other_servers()
        keys = (self.tlog_key, self.tlog_key_next)
        if fault := tlog_fault(self.tlog_name, keys, self.tlog_policy, is_required=self.tlog_witness_required):
            raise SettingError(fault)
        _ = self.proxies, self.rate_limits, self.exempt_networks, self.metrics_networks

    def _check_other_servers(self) -> None:
        """Raise `SettingError` for a malformed URL."""
        if self.trace_endpoint and not self.trace_endpoint.startswith(("http://", "https://")):
            raise SettingError("trace_endpoint must be an http or https URL")
        if self.trace_ratio and not self.trace_endpoint:
            raise SettingError("trace_ratio needs a trace_endpoint")
        if self.public_url and not is_base_url(self.public_url):
            raise SettingError("public_url must be http://host:port or https://host:port, and may have a path")
        if not (self.public_url or self.bare_nonces):
            raise SettingError("bare_nonces = false needs a public_url, which log-ins can name")

    def __repr__(self) -> str:
        """The values of `shown`, which masks secrets."""
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.shown().items())})"

    @property
    def takes_relayed_nonces(self) -> bool:
        """Whether a log-in may sign a nonce that another registry passed on, though this one has a URL for words."""
        return bool(self.public_url) and self.bare_nonces and not is_loopback(self.public_url)

    @property
    def migrates_at_start(self) -> bool:
        """Whether a process applies missing migrations at its start."""
        if self.migrate_at_start == "auto":
            return self.database_url.startswith("sqlite:")
        return self.migrate_at_start == "true"

    @property
    def listens_beyond_this_machine(self) -> bool:
        """Whether other machines may reach the service: then defaults for a laptop get a warning."""
        return self.host not in {"127.0.0.1", "::1", "localhost"}

    @property
    def backup_mark(self) -> Path:
        """The file whose modification time is the newest backup's; operators with other backup tools touch it."""
        return self.data_dir / "last-backup"

    @property
    def own_url(self) -> str:
        """The URL at which this machine reaches a service with these settings; loopback if it listens everywhere."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104 - compared
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def read_urls(self) -> tuple[str, ...]:
        """The URL of each replica. A URL may itself contain commas, between hosts."""
        return tuple(url.strip() for url in _BETWEEN_URLS.split(self.database_read_urls) if url.strip())

    @property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `trusted_proxies`. Raises `SettingError`."""
        return networks_of("trusted_proxies", self.trusted_proxies)

    @property
    def exempt_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `rate_limit_exempt`. Raises `SettingError`."""
        return networks_of("rate_limit_exempt", self.rate_limit_exempt)

    @property
    def metrics_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `metrics_from`. Raises `SettingError`."""
        return networks_of("metrics_from", self.metrics_from)

    @property
    def rate_limits(self) -> Mapping[PolicyName, Policy | None]:
        """The policy of each `rate_limit_…`, None where it is off. Raises `SettingError`."""
        try:
            return parse_policies({name: getattr(self, f"rate_limit_{name}") for name in POLICY_NAMES})
        except ValueError as error:
            raise SettingError(f"rate_limit_{error}") from None

    def shown(self) -> dict[str, str]:
        """Name to value as text, secrets and the password in a database's URL masked."""
        shown: dict[str, str] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            shown[each.name] = MASK if each.metadata["secret"] and value else without_password(_text(value))
        shown["database_read_urls"] = ",".join(map(without_password, self.read_urls))
        shown["price_api_url"] = without_path(self.price_api_url)
        shown["trace_endpoint"] = without_path(self.trace_endpoint)
        return shown

    def environment(self) -> dict[str, str]:
        """The environment variables with which another process loads the same settings."""
        return {variable(each.name): _text(getattr(self, each.name)) for each in fields(self)}


_BETWEEN_URLS: Final = re.compile(r",\s*(?=postgres(?:ql)?://)")
_CHOICES: Final = {
    "migrate_at_start": ("auto", "true", "false"),
    "unixfs_profile": ("unixfs-v0-2015", "unixfs-v1-2025"),
    "log_format": ("console", "json"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_requests": ("none", "slow", "errors", "all"),
    "feed": ("on", "off"),
    "webhooks": ("on", "off"),
}


def _text(value: object) -> str:
    """A value as text for the environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def variable(name: str) -> str:
    """The environment variable of a setting: `data_dir` is `MUNIMENT_DATA_DIR`."""
    return PREFIX + name.upper()


def _variables(name: str) -> tuple[str, str]:
    """The variable of a setting, and that of a file with its value."""
    return variable(name), f"{variable(name)}_FILE"


_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-[0-9]{1,2})?")


def load_settings(
    flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> Settings:
    """The effective settings. Flags that are None and variables that are empty were not given.

    Raises `SettingError`, also for an unknown name in the file, and for a setting that is gone. Unknown names in the
    environment are ignored: orchestrators put their own variables there. `environment.unread_variables` names them.
    """
    environ = os.environ if environ is None else environ
    values = _from_file(config) if config else {}
    values |= _from_environment(environ)
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    converted: dict[str, Any] = {name: _converted(name, value) for name, value in values.items()}
    return Settings(**converted)


def _from_file(config: Path) -> dict[str, object]:
    try:
        values = cast("dict[str, object]", tomllib.loads(read_text(config)))
    except (OSError, ValueError) as error:
        raise SettingError(f"{config}: {error}") from error
    known = {each.name for each in fields(Settings)}
    for name in values:
        if name not in known:
            raise SettingError(f"{config}: {refusal_text(name) or f'there is no setting {name}'}")
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for removed in REMOVED:
        if name := next((each for each in _variables(removed) if environ.get(each)), None):
            raise SettingError(f"{name}: {refusal_text(removed)}")
    for each in fields(Settings):
        name = variable(each.name)
        if given := environ.get(name):
            values[each.name] = given
        elif path := environ.get(f"{name}_FILE"):
            try:
                values[each.name] = read_text(Path(path)).strip()
            except (OSError, ValueError) as error:
                raise SettingError(f"{name}_FILE cannot be read: {type(error).__name__}") from error
            if not values[each.name]:
                raise SettingError(f"{name}_FILE is empty")
    return values


def _converted(name: str, value: object) -> object:
    kind = next(each.type for each in fields(Settings) if each.name == name)
    if kind == "float":
        if not _NUMBER.fullmatch(str(value)):
            raise SettingError(f"{name} must be a number such as 0.01")
        return float(str(value))
    if kind == "bool":
        if str(value).lower() not in {"true", "false"}:
            raise SettingError(f"{name} must be true or false")
        return str(value).lower() == "true"
    if kind == "int":
        if not _INTEGER.fullmatch(str(value)):
            raise SettingError(f"{name} must be a whole number")
        return int(str(value))
    if not isinstance(value, (str, Path)):
        raise SettingError(f"{name} must be text")
    return Path(value).expanduser() if kind == "Path" else str(value)
