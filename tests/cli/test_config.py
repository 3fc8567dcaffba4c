"""`muniment config`: the effective settings, from wherever they come, with every secret masked."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import warm
from muniment.cli.main import main
from muniment.service.running.settings import Settings, load_settings

SECRET = "c0ffee" * 10 + "1234"
MYSQL = "mysql://muniment:hidden@db/muniment"


def run(*arguments: str, command: str = "config", **environ: str) -> Result:
    return CliRunner().invoke(main, [command, *arguments], env=environ)


def is_one_line(said: str) -> None:
    assert said.startswith("Error: ")
    assert said.count("\n") == 1


def shown(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return dict(line.split("=", 1) for line in result.output.splitlines())


def test_every_setting_is_shown_as_its_variable() -> None:
    assert shown(run()) == Settings().environment()


@pytest.mark.parametrize(
    "command", [["serve", "--database-url", MYSQL], ["relayer", "--config", "absent.toml"]], ids=["serve", "relayer"]
)
def test_a_start_names_the_variables_that_nothing_reads(command: list[str], tmp_path: Path) -> None:
    environment = {"MUNIMENT_SECRTE": SECRET, "MUNIMENT_LOG_FORMAT": "json", "MUNIMENT_DATA_DIR": str(tmp_path)}
    done = warm.run(*command, environment=environment, directory=tmp_path)
    (line,) = [each for each in done.stderr.splitlines() if "nothing reads" in each]
    assert json.loads(line)["variables"] == "MUNIMENT_SECRTE (MUNIMENT_SECRET?)"
    assert SECRET not in done.stdout + done.stderr


def test_the_printed_settings_can_be_read_again() -> None:
    assert load_settings(environ=shown(run(MUNIMENT_PORT="99"))) == Settings(port=99)


def test_secrets_and_passwords_are_masked(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    result = run(
        MUNIMENT_SECRET_FILE=str(tmp_path / "secret"), MUNIMENT_DATABASE_URL="postgresql://muniment:hidden@db/muniment"
    )
    assert shown(result)["MUNIMENT_SECRET"] == "********"
    assert SECRET not in result.output
    assert "hidden" not in result.output


def test_flags_files_and_the_environment_are_all_heeded(tmp_path: Path) -> None:
    config = tmp_path / "muniment.toml"
    config.write_text('issuer = "from the file"\nport = 1\n')
    assert tomllib.loads(config.read_text())["port"] == 1
    (tmp_path / "muniment.db").touch()
    found = shown(run("--config", str(config), "--data-dir", str(tmp_path), MUNIMENT_PORT="2"))
    assert found["MUNIMENT_ISSUER"] == "from the file"
    assert found["MUNIMENT_PORT"] == "2"
    assert found["MUNIMENT_DATA_DIR"] == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MUNIMENT_PORT", "http"), ("MUNIMENT_LOG_LEVEL", "loud"), ("MUNIMENT_SECRET_FILE", "/does/not/exist")],
)
@pytest.mark.parametrize("command", ["config", "serve", "migrate", "verify"])
def test_a_setting_that_cannot_be_read_is_reported_in_one_line(command: str, name: str, value: str) -> None:
    is_one_line(run(command=command, **{name: value}).output)


def test_an_unknown_name_in_the_file_is_reported_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "muniment.toml"
    config.write_text("prot = 1\n")
    result = run("--config", str(config))
    assert result.exit_code == 1
    assert result.output == f"Error: {config}: there is no setting prot\n"


@pytest.mark.parametrize("command", ["migrate", "verify"])
def test_a_database_of_an_unknown_kind_is_reported_in_one_line_without_its_password(
    tmp_path: Path, command: str
) -> None:
    result = run(command=command, MUNIMENT_DATABASE_URL=MYSQL, MUNIMENT_DATA_DIR=str(tmp_path))
    assert result.exit_code == 1
    is_one_line(result.output)
    assert "hidden" not in result.output


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("MUNIMENT_DATABASE_URL", MYSQL, id="unknown database"),
        pytest.param("MUNIMENT_SECRET", "c0ffee", id="short secret"),
        pytest.param("MUNIMENT_SECRET", f"{SECRET},{SECRET}", id="one secret twice"),
    ],
)
def test_serve_does_not_start_with_an_impossible_setting_and_does_not_repeat_its_value(
    tmp_path: Path, name: str, value: str
) -> None:
    # A process of its own, because serve sets up the logs of its process.
    said = warm.run("serve", "--port", "0", data=tmp_path, environment={name: value})
    assert said.returncode == 1
    assert said.stdout == ""
    is_one_line(said.stderr)
    assert "c0ffee" not in said.stderr
    assert "hidden" not in said.stderr
