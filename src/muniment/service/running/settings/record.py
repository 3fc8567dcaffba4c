"""The settings: each with a name, a working default, and one line of description."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muniment.service.running.limits.policies import NAMES as POLICY_NAMES, parse_policies
from muniment.service.running.settings.errors import SettingError
from muniment.service.running.settings.networks import networks_of
from muniment.service.running.settings.tlog import tlog_fault
from muniment.service.running.settings.urls import MASK, is_base_url, is_postgresql, without_password, without_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.service.running.limits.policies import Name as PolicyName, Policy

PREFIX: Final = "MUNIMENT_"
MIB: Final = 2**20


def _setting(
    default: object, about: str, *, secret: bool = False, at_least: int | None = None, at_most: int | None = None
) -> Any:
    return field(default=default, metadata={"about": about, "secret": secret, "at_least": at_least, "at_most": at_most})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a registry."""

    data_dir: Path = _setting(Path("data"), "Directory of the SQLite file, the blocks and the embedded secrets")
    database_url: str = _setting(
        "sqlite:///muniment.db", "Database; a relative SQLite path is inside the data directory"
    )
    database_read_urls: str = _setting(
        "",
        "Streaming replicas of a PostgreSQL database, comma-separated URLs of one server each, for listings and "
        "records; clients that have just written read from the primary",
    )
    replica_lag_s_max: int = _setting(
        5,
        "Largest age in seconds of data from a replica; also the time for which replicas serve without the primary",
        at_least=1,
    )
    blocks_url: str = _setting(
        "",
        "Place of the blocks of bundles: file: (in the data directory), file:///path, s3://bucket/prefix, or database: "
        "(a table of the database); empty: file: with SQLite, database: with PostgreSQL",
    )
    migrate_at_start: str = _setting(
        "auto",
        "true: serve applies missing migrations; false: only `muniment migrate` does, and /readyz is 503 before it; "
        "auto: true on SQLite, false on PostgreSQL",
    )
    host: str = _setting("127.0.0.1", "Address to listen on")
    port: int = _setting(8787, "Port to listen on; 0: any free port", at_least=0, at_most=65_535)
    trusted_proxies: str = _setting(
        "",
        "Trusted proxy networks, comma-separated, like 10.0.0.0/8; empty: `X-Forwarded-For` is ignored",
    )
    metrics_from: str = _setting(
        "127.0.0.0/8, ::1/128",
        "Networks that may read GET /metrics, comma-separated; for others, and through a proxy, it is 404; "
        "empty: no client",
    )
    rate_limit_client: str = _setting(
        "20000/20s", "Units per address (IPv6: per /64) and time; a unit is about one read of 25 µs. off: no limit"
    )
    rate_limit_login: str = _setting("600/60s", "Logins and nonces per address and time; off: no limit")
    rate_limit_owner: str = _setting(
        "3600/1h",
        "Additions per wallet and time: a new trigger counts 1, a new function 10; of all wallets of an address 16 "
        "times as many, each for 32 KiB of new functions; off: no limit",
    )
    rate_limit_stop: str = _setting("60/60s", "Deactivations per address and time; off: no limit")
    rate_limit_exempt: str = _setting("", "Networks without rate limits, comma-separated, like 10.0.0.0/8")
    workers: int = _setting(1, "Number of serving processes, on one port and one database", at_least=1)
    secret: str = _setting(
        "",
        "Secrets, newest first, comma-separated, 32 bytes of hex each; empty: a file in the data directory",
        secret=True,
    )
    protocol_name: str = _setting("Mimic", "First word of the EIP-712 domain `<name> Protocol - Registry`")
    public_url: str = _setting("", "URL for users, named in the text that they sign to log in; empty: a bare nonce")
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
        "",
        "TOML or JSON file of fixed prices, `chainId:address` to US dollars; used after price feeds, before the API",
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
    ipfs_pin_url: str = _setting(
        "", "RPC of an IPFS node that pins every bundle, like http://127.0.0.1:5001; empty: none"
    )
    ipfs_pin_authorization: str = _setting(
        "", "Header field `Authorization` for this node, like `Bearer …`, if it wants one", secret=True
    )
    console: bool = _setting(True, "Pages for people at /console; false: their paths are 404")
    feed: str = _setting("on", "The change feed; off: its operations are 404, and events are stored all the same")
    feed_days: int = _setting(30, "Days for which the change feed keeps its events", at_least=1, at_most=3_650)
    webhooks: str = _setting(
        "operators",
        "Who may have webhooks: operators (any events), users (operators too; a wallet gets its own events), or off",
    )
    tlog_name: str = _setting("", "Name of the transparency log, like registry.example.org, for good; empty: no log")
    tlog_key: str = _setting(
        "",
        "Secret of the log, 64 hex digits; empty: on SQLite a file, on PostgreSQL this process never signs",
        secret=True,
    )
    tlog_key_next: str = _setting("", "The secret for `muniment tlog rotate`; empty: on SQLite a new one", secret=True)
    tlog_interval_s: int = _setting(2, "Seconds between two looks for facts to log", at_least=1)
    tlog_policy: str = _setting(
        "", "File in the tlog-policy format: the witnesses that cosign checkpoints, with their URLs; empty: none"
    )
    tlog_witness_required: bool = _setting(
        False, "true: a checkpoint without the quorum of the witnesses is held back; false: it is shown all the same"
    )
    body_bytes_max: int = _setting(256 * 1024, "Largest JSON body", at_least=1024)
    trigger_bytes_max: int = _setting(128 * 1024, "Largest body of POST /triggers for a new trigger", at_least=8192)
    manifest_bytes_max: int = _setting(256 * 1024, "Largest manifest.json", at_least=1024)
    wasm_bytes_max: int = _setting(16 * MIB, "Largest function.wasm", at_least=1024)
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
    shutdown_delay_s: int = _setting(0, "Seconds at SIGTERM from not ready until the port is closed", at_least=0)
    shutdown_timeout_s: int = _setting(30, "Timeout in seconds at SIGTERM for running requests", at_least=1)
    log_format: str = _setting("console", "Format of the log on standard error: console or json")
    log_level: str = _setting("info", "Lowest level of the log: debug, info, warning or error")
    log_requests: str = _setting(
        "none",
        "Requests with a line in the log: none, slow, errors (answers of 500 and above) or all (this costs throughput)",
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
            if getattr(self, name) not in choices:
                raise SettingError(f"{name} must be one of {', '.join(choices)}")
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
        """Raise `SettingError` for a malformed URL or credential."""
        if self.trace_endpoint and not self.trace_endpoint.startswith(("http://", "https://")):
            raise SettingError("trace_endpoint must be an http or https URL")
        if self.trace_ratio and not self.trace_endpoint:
            raise SettingError("trace_ratio needs a trace_endpoint")
        if not self.ipfs_pin_authorization.isascii() or not self.ipfs_pin_authorization.isprintable():
            raise SettingError("ipfs_pin_authorization has characters that no header field may have")
        for name, rest in {"ipfs_pin_url": "credentials belong into ipfs_pin_authorization", "public_url": ""}.items():
            if (url := getattr(self, name)) and not is_base_url(url):
                must = f"{name} must be http://host:port or https://host:port, and may have a path"
                raise SettingError(f"{must}; {rest}" if rest else must)

    def __repr__(self) -> str:
        """The values of `shown`, which masks secrets."""
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.shown().items())})"

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
    "webhooks": ("off", "operators", "users"),
}


def _text(value: object) -> str:
    """A value as text for the environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def variable(name: str) -> str:
    """The environment variable of a setting: `data_dir` is `MUNIMENT_DATA_DIR`."""
    return PREFIX + name.upper()
