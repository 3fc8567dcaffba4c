"""Settings, commands and options that are gone are refused with what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from muniment.cli.main import main
from muniment.cli.removed import removed_command, removed_option
from muniment.service.running.removed import REMOVED
from muniment.service.running.settings import SettingError, Settings, load_settings


@pytest.fixture(autouse=True)
def _removed_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMOVED, "old_url", "set public_url")


def test_a_file_with_a_setting_that_is_gone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "muniment.toml"
    file.write_text('old_url = "https://registry.example"\n')
    with pytest.raises(SettingError, match=r"muniment\.toml: the setting old_url is gone: set public_url$"):
        load_settings(environ={}, config=file)


@pytest.mark.parametrize("name", ["MUNIMENT_OLD_URL", "MUNIMENT_OLD_URL_FILE"])
def test_a_variable_of_a_setting_that_is_gone_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}: the setting old_url is gone: set public_url$"):
        load_settings(environ={name: "https://registry.example"})
    assert load_settings(environ={name: ""}) == Settings()


@pytest.mark.parametrize("value", ["operators", "users"])
def test_a_registry_with_webhooks_of_owners_is_not_started_without_them(tmp_path: Path, value: str) -> None:
    file = tmp_path / "muniment.toml"
    file.write_text(f'webhooks = "{value}"\n')
    instead = "write on, the default: webhooks belong to operators, and those of owners are gone"
    sentence = f"^webhooks = {value} is gone: {instead}$"
    with pytest.raises(SettingError, match=sentence):
        load_settings(environ={}, config=file)
    with pytest.raises(SettingError, match=sentence):
        load_settings(environ={"MUNIMENT_WEBHOOKS": value})
    assert load_settings(environ={"MUNIMENT_WEBHOOKS": ""}).webhooks == "on"
    assert load_settings(environ={"MUNIMENT_WEBHOOKS": "off"}).webhooks == "off"


def test_several_processes_are_refused_with_what_to_do_and_nothing_is_made(tmp_path: Path) -> None:
    file, data = tmp_path / "muniment.toml", tmp_path / "data"
    file.write_text("workers = 2\n")
    serve = ["serve", "--data-dir", str(data), "--port", "0"]
    for words, environment in (
        ([*serve, "--workers", "2"], {}),
        ([*serve, "--workers=1"], {}),
        ([*serve, "--config", str(file)], {}),
        (serve, {"MUNIMENT_WORKERS": "1"}),
        (["demo", *serve[1:]], {"MUNIMENT_WORKERS": "2"}),
    ):
        result = CliRunner().invoke(main, words, env=environment)
        assert result.exit_code == (2 if "--workers" in "".join(words) else 1)
        assert "workers is gone: a service is one process; for more cores run several services" in result.output
        assert "docs/run/scaling.md" in result.output
        assert not data.exists()


def test_no_setting_is_both_known_and_gone() -> None:
    assert set(REMOVED) & set(Settings().shown()) == set()


@click.group()
def group() -> None:
    """A group with a command that is gone, and one with an option that is gone."""


@group.command()
@removed_option("--old", "start more services")
@removed_option("--flag", "it is always so", is_flag=True)
@click.option("--new")
def serve(new: str | None) -> None:
    """Print the option."""
    click.echo(new)


group.add_command(removed_command("export", "use `group list --json`"))


def test_a_command_that_is_gone_is_refused_whatever_it_is_given() -> None:
    for arguments in ([], ["file"], ["--json", "file"], ["--help"]):
        result = CliRunner().invoke(group, ["export", *arguments])
        assert result.exit_code == 2
        assert "Error: `group export` is gone: use `group list --json`\n" in result.output


def test_an_option_that_is_gone_is_refused_whatever_else_is_given() -> None:
    for arguments in (["--old", "2"], ["--old=2"], ["--new", "1", "--old", "2"]):
        result = CliRunner().invoke(group, ["serve", *arguments])
        assert result.exit_code == 2
        assert "Error: the option --old is gone: start more services\n" in result.output
    result = CliRunner().invoke(group, ["serve", "--flag"])
    assert "Error: the option --flag is gone: it is always so\n" in result.output
    assert CliRunner().invoke(group, ["serve", "--new", "1"]).output == "1\n"


def test_no_help_shows_what_is_gone() -> None:
    assert "export" not in CliRunner().invoke(group, ["--help"]).output
    assert "--old" not in CliRunner().invoke(group, ["serve", "--help"]).output


def hidden_commands(parent: click.Group, path: str = "muniment") -> Iterator[str]:
    for name, command in parent.commands.items():
        if command.hidden:
            yield f"{path} {name}"
        if isinstance(command, click.Group):
            yield from hidden_commands(command, f"{path} {name}")


def test_each_command_of_this_program_that_is_gone_says_what_to_do() -> None:
    for path in hidden_commands(main):
        result = CliRunner().invoke(main, path.split()[1:], prog_name="muniment")
        assert (result.exit_code, f"`{path}` is gone: " in result.output) == (2, True), path
