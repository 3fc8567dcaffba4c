"""Settings: where they come from, which comes first, and that secrets are shown nowhere."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from each_row import each_row
from muniment.service.running.environment import unread_variables
from muniment.service.running.settings import MASK, SettingError, Settings, load_settings, variable

SECRET = "c0ffee" * 10 + "1234"


def load(**environ: str) -> Settings:
    return load_settings(environ={f"MUNIMENT_{name}": value for name, value in environ.items()})


def test_everything_has_a_default_that_works() -> None:
    assert load() == Settings()


@each_row("name", [each.name for each in fields(Settings)])
def test_every_setting_has_a_line_that_says_what_it_does(name: str) -> None:
    (about,) = [each.metadata["about"] for each in fields(Settings) if each.name == name]
    assert about[0].isupper() or about.startswith(("`", "true", "console", "debug"))


def test_the_environment_sets_each_kind_of_value() -> None:
    settings = load(PORT="1234", DATA_DIR="/srv/muniment", ISSUER="registry.example", LOG_REQUESTS="all")
    assert settings.port == 1234
    assert settings.data_dir == Path("/srv/muniment")
    assert settings.issuer == "registry.example"
    assert settings.log_requests == "all"


def test_a_variable_that_is_empty_was_not_given(tmp_path: Path) -> None:
    assert load(PORT="", DATA_DIR="", SECRET="") == Settings()
    (tmp_path / "secret").write_text(SECRET)
    assert load(SECRET="", SECRET_FILE=str(tmp_path / "secret")).secret == SECRET


def test_variables_of_others_are_left_alone() -> None:
    assert load(SERVICE_HOST="10.0.0.1") == load_settings(environ={"PORT": "1", "port": "1"}) == Settings()


def test_variables_that_nothing_reads_are_named_with_what_they_may_mean() -> None:
    known = ["MUNIMENT_PORT", "MUNIMENT_SECRET_FILE", "MUNIMENT_OPERATOR_KEY", "MUNIMENT_PRIVATE_KEY_FILE", "PATH"]
    cluster = ["SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_8787_TCP", "PORT_8787_TCP_ADDR", "POSTGRES_SERVICE_HOST"]
    assert unread_variables([*known, *(f"MUNIMENT_{each}" for each in cluster)]) == []
    assert unread_variables(["MUNIMENT_TLOGNAME", "muniment_port", "MUNIMENT_X", "MUNIMENT_OPERATOR_KEY_FILE"]) == [
        "MUNIMENT_OPERATOR_KEY_FILE (MUNIMENT_OPERATOR_KEY?)", "MUNIMENT_TLOGNAME (MUNIMENT_TLOG_NAME?)", "MUNIMENT_X",
        "muniment_port (MUNIMENT_PORT?)",
    ]  # fmt: skip


def test_a_value_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "port").write_text("4321\n")
    settings = load(SECRET_FILE=str(tmp_path / "secret"), PORT_FILE=str(tmp_path / "port"))
    assert settings.secret == SECRET
    assert settings.port == 4321


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"], ids=["absent", "empty", "blank", "not UTF-8"])
def test_a_file_that_gives_no_value_is_an_error_not_a_default(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError, match="MUNIMENT_SECRET_FILE"):
        load(SECRET_FILE=str(path))


def test_a_toml_file_sets_values(tmp_path: Path) -> None:
    config = tmp_path / "muniment.toml"
    config.write_text('port = 99\nprotocol_name = "Acme"\ndata_dir = "/srv"\nlog_requests = "all"\n')
    settings = load_settings(environ={}, config=config)
    assert settings == Settings(port=99, protocol_name="Acme", data_dir=Path("/srv"), log_requests="all")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("prot = 99", "there is no setting prot", id="unknown name"),
        pytest.param("[muniment]\nport = 99", "there is no setting muniment", id="table"),
        pytest.param("port = ", "Invalid value", id="not TOML"),
        pytest.param("port = 1\nport = 2", "Cannot overwrite", id="given twice"),
        pytest.param("port = true", "port must be a whole number", id="boolean for a number"),
        pytest.param("port = 80.5", "port must be a whole number", id="fraction"),
        pytest.param("port = [80]", "port must be a whole number", id="list for a number"),
        pytest.param("log_requests = 1", "log_requests must be text", id="number for a choice"),
        pytest.param("trace_ratio = 2", "trace_ratio must be at most 1", id="ratio above one"),
        pytest.param("trace_ratio = nan", "trace_ratio must be a number such as 0.01", id="no number"),
        pytest.param("trace_ratio = 0.1", "trace_ratio needs a trace_endpoint", id="ratio without a collector"),
        pytest.param(
            'trace_endpoint = "collector:4318"', "trace_endpoint must be an http or https URL", id="no scheme"
        ),
        pytest.param("issuer = 5", "issuer must be text", id="number for text"),
        pytest.param('issuer = ["a"]', "issuer must be text", id="list for text"),
        pytest.param("data_dir = 2026-11-20", "data_dir must be text", id="date for a path"),
    ],
)
def test_a_toml_file_that_cannot_be_meant_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "muniment.toml"
    config.write_text(text)
    with pytest.raises(SettingError, match=said):
        load_settings(environ={}, config=config)


def test_a_toml_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"absent\.toml"):
        load_settings(environ={}, config=tmp_path / "absent.toml")


def test_a_flag_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    config = tmp_path / "muniment.toml"
    config.write_text('port = 1\nhost = "one"\nissuer = "one"\n')
    environ = {"MUNIMENT_PORT": "2", "MUNIMENT_HOST": "two"}
    settings = load_settings({"port": 3, "host": None}, environ, config)
    assert (settings.port, settings.host, settings.issuer) == (3, "two", "one")


@each_row(
    ("name", "value"),
    [
        ("PORT", "-1"), ("PORT", "65536"), ("PORT", "http"), ("PORT", "tcp://10.0.0.1:80"), ("PORT", "8_787"),
        ("PORT", "٨"), ("PORT", "80.0"), ("PORT", " 80"), ("PORT", "9" * 5000), ("PORT", "1e3"),
        ("BODY_TIMEOUT_S", "0"), ("BODY_BYTES_MAX", "1023"), ("TOKEN_LIFETIME_S", "59"), ("LOG_LEVEL", "trace"),
        ("LOG_FORMAT", "xml"), ("UNIXFS_PROFILE", "unixfs-v2"), ("LOG_REQUESTS", "yes"), ("LOG_REQUESTS", "1"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_work_is_an_error_that_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"^{name.lower()} must be "):
        load(**{name: value})


def test_the_key_of_a_collector_is_masked() -> None:
    shown = load(TRACE_ENDPOINT="https://user:word@collector.example/key-in-a-path").shown()
    assert shown["trace_endpoint"] == f"https://collector.example/{MASK}"


def test_secrets_are_masked_in_what_is_shown_and_in_the_repr() -> None:
    settings = load(SECRET=SECRET)
    assert settings.shown()["secret"] == MASK
    assert SECRET not in repr(settings) + str(settings)
    assert Settings().shown()["secret"] == "", "an empty secret is shown as empty"


@each_row(
    ("url", "shown"),
    [
        ("postgresql://muniment:pass@db/muniment", f"postgresql://muniment:{MASK}@db/muniment"),
        ("postgresql://muniment:p@ss:w/ord@db:5432/m", f"postgresql://muniment:{MASK}@db:5432/m"),
        ("postgresql://:pass@db/m", f"postgresql://:{MASK}@db/m"),
        ("postgresql://db/m?user=u&password=pass&x=1", f"postgresql://db/m?user=u&password={MASK}&x=1"),
        ("postgresql://muniment@db:5432/m", "postgresql://muniment@db:5432/m"),
        ("sqlite:///muniment.db", "sqlite:///muniment.db"),
    ],
)
def test_the_password_in_a_database_url_is_masked(url: str, shown: str) -> None:
    settings = load(DATABASE_URL=url)
    assert settings.shown()["database_url"] == shown
    assert "pass@" not in repr(settings)
    assert settings.database_url == url


@pytest.mark.parametrize("text", [f"secret = {SECRET}", f'secret = "{SECRET}', f'"{SECRET}" = 1\nsecret = x'])
def test_an_error_does_not_repeat_a_secret(tmp_path: Path, text: str) -> None:
    config = tmp_path / "muniment.toml"
    config.write_text(text)
    with pytest.raises(SettingError) as caught:
        load_settings(environ={}, config=config)
    assert SECRET not in str(caught.value)


def test_another_process_gets_these_very_settings_from_the_environment() -> None:
    changed: dict[str, Any] = {"secret": SECRET, "port": 0, "data_dir": Path("/srv"), "log_requests": "slow"}
    settings = Settings(**changed)
    assert load_settings(environ=settings.environment()) == settings
    assert variable("data_dir") == "MUNIMENT_DATA_DIR"


@each_row(
    ("url", "shown"),
    [
        ("", ""),
        ("https://coins.example", "https://coins.example"),
        ("https://pro.example/KEY/coins", "https://pro.example/********"),
        ("https://user:KEY@pro.example:8443/?key=KEY", "https://pro.example:8443/********"),
    ],
)
def test_of_a_price_api_only_scheme_and_host_are_shown(url: str, shown: str) -> None:
    settings = Settings(price_api_url=url)
    assert settings.shown()["price_api_url"] == shown
    assert "KEY" not in repr(settings)


@each_row(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"), ("::", "http://[::1]:80"), ("2001:db8::1", "http://[2001:db8::1]:80"),
        ("registry.example", "http://registry.example:80"),
    ],
)  # fmt: skip
def test_the_own_url_is_one_that_this_machine_can_reach(host: str, url: str) -> None:
    assert Settings(host=host, port=80).own_url == url


@each_row("url", [
    "127.0.0.1:5001", "ftp://127.0.0.1", "http://", "http://me:secret@127.0.0.1:5001", "http://127.0.0.1:99999",
    "http://127.0.0.1:5001?arg=1", "http://127.0.0.1:5001/#a", "http://127.0.0.1:5001/ a", "http://nöde",
])  # fmt: skip
def test_the_public_url_is_a_base_url_without_credentials(url: str) -> None:
    with pytest.raises(SettingError, match="public_url must be") as refusal:
        load(PUBLIC_URL=url)
    assert "secret" not in str(refusal.value)


@each_row("url", ["http://127.0.0.1:5001", "https://[::1]:5001/", "https://ipfs.example/prefix"])
def test_the_public_url_may_have_a_path(url: str) -> None:
    assert load(PUBLIC_URL=url).public_url == url


@each_row("name", ["a b", "a+b", "-a", "a\n", "é", "a" * 201])
def test_a_name_that_no_log_can_have_is_an_error(name: str) -> None:
    with pytest.raises(SettingError, match="tlog_name has at most 200 letters"):
        Settings(tlog_name=name)
    assert Settings(tlog_name="registry.example.org:8443/main").tlog_name


@each_row("key", ["ab" * 31, "ab" * 33, "gg" * 32, "ab" * 32 + "\n"])
def test_a_key_of_the_log_has_64_hex_digits_and_is_not_repeated(key: str) -> None:
    with pytest.raises(SettingError, match="tlog_key must be 64 hex digits") as refusal:
        Settings(tlog_key=key)
    assert key not in str(refusal.value)
    assert Settings(tlog_key="ab" * 32).shown()["tlog_key"] == MASK


def test_a_required_witness_needs_a_policy_that_names_it() -> None:
    with pytest.raises(SettingError, match="tlog_witness_required needs a tlog_policy"):
        Settings(tlog_witness_required=True)
    assert Settings(tlog_witness_required=True, tlog_policy="policy").tlog_witness_required
