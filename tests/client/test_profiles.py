"""Profiles and stored credentials."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import warm
from builders import Wallet
from muniment.client import AsyncRegistry, Profile, Profiles, Registry

URL, ADDRESS = "https://registry.example.org", Wallet(1).address


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiles:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Profiles.of_user()


def test_profiles_are_kept_as_they_were_put(profiles: Profiles) -> None:
    assert profiles.all() == {}
    odd = Profile(URL, ADDRESS, wallet='command:sh -c "echo \\"ü\\n"', protocol="Our ☃")
    for name, profile in (("b", Profile(URL)), ("a-1_", odd), ("b", Profile(f"{URL}/below", ADDRESS))):
        profiles.put(name, profile)
    assert profiles.all() == {"a-1_": odd, "b": Profile(f"{URL}/below", ADDRESS)}
    profiles.remove("b")
    assert [*profiles.all()] == ["a-1_"]
    with pytest.raises(ValueError, match="profile b not found; known profiles: a-1_"):
        profiles.get("b")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a]", "ä", "x" * 41, '"'])
def test_another_name_than_letters_and_digits_is_refused(profiles: Profiles, name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        profiles.put(name, Profile(URL))
    assert profiles.all() == {}


@pytest.mark.parametrize(
    "content", [b"profiles", b"[profiles]\na = 1", b"[profiles.a]\nsecret = 'x'", b"\xff", b"[profiles.a]\nurl = 5"]
)
def test_a_damaged_file_of_profiles_is_named(profiles: Profiles, content: bytes) -> None:
    profiles.directory.mkdir()
    (profiles.directory / "config.toml").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.toml is not a valid profiles file"):
        profiles.all()


def test_credentials_are_of_one_origin_and_one_address(profiles: Profiles) -> None:
    one = Profile(URL, ADDRESS)
    profiles.keep(one, token="t", apiKey="k")
    profiles.keep(one, apiKey="newer")
    assert profiles.credentials(Profile(f"{URL}/below", ADDRESS, protocol="Other")) == {"token": "t", "apiKey": "newer"}
    for other in (Profile(URL), Profile(URL, Wallet(2).address), Profile("http://registry.example.org", ADDRESS)):
        assert profiles.credentials(other) == {}
    assert stat.S_IMODE(profiles.credentials_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(profiles.directory.stat().st_mode) == 0o700
    assert profiles.forget(one)
    assert not profiles.forget(one)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_credentials_that_others_can_read_are_not_used(profiles: Profiles, mode: int) -> None:
    profiles.keep(Profile(URL, ADDRESS), apiKey="a secret")
    profiles.credentials_file.chmod(mode)
    with pytest.raises(ValueError, match="other users of this machine can read") as raised:
        profiles.credentials(Profile(URL, ADDRESS))
    assert "a secret" not in str(raised.value)


@pytest.mark.parametrize("content", ["", "[]", "{", '"x"', '{"a": "b"}', '{"a": {"token": 5}}'])
def test_a_damaged_file_of_credentials_is_named(profiles: Profiles, content: str) -> None:
    profiles.keep(Profile(URL, ADDRESS), apiKey="a secret")
    profiles.credentials_file.write_text(content)
    with pytest.raises(ValueError, match="remove it, and log in"):
        profiles.credentials(Profile(URL, ADDRESS))


@pytest.mark.parametrize("name", ["config.toml", "credentials.json"])
def test_a_file_of_many_brackets_is_named(profiles: Profiles, name: str) -> None:
    profiles.keep(Profile(URL, ADDRESS), apiKey="a secret")
    profiles.put("a", Profile(URL))
    (profiles.directory / name).write_text("a=" * name.startswith("config") + "[" * 60_000)
    # In a process of its own: another library of the tests raises the limit of recursion in this one.
    program = f"from muniment.client import Registry; Registry.from_profile({'a'!r})"
    done = warm.run(program=["-c", program])
    assert "ValueError" in done.stderr
    assert f"{name} is not a valid " in done.stderr


def test_profiles_are_for_their_owner_alone_because_a_wallet_may_be_named_by_a_token(profiles: Profiles) -> None:
    profiles.directory.mkdir(mode=0o755)
    profiles.put("a", Profile(URL, wallet="rpc:https://wallet.example.org/a-token"))
    assert stat.S_IMODE((profiles.directory / "config.toml").stat().st_mode) == 0o600


def test_processes_that_change_profiles_at_the_same_time_lose_nothing(profiles: Profiles) -> None:
    program = (
        "import sys; from muniment.client import Profile, Profiles; profiles = Profiles.of_user()\n"
        "for number in range(20):\n"
        "    name = f'{sys.argv[1]}-{number}'\n"
        "    profiles.put(name, Profile(f'http://{name}')); profiles.keep(Profile(f'http://{name}'), token=name)"
    )
    environment = {**os.environ, "PYTHONPATH": str(warm.UNHURRIED)}
    running = [warm.popen([str(each)], environment, ["-c", program], stdout=1) for each in range(3)]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    expected = {f"{each}-{number}" for each in range(3) for number in range(20)}
    assert {*profiles.all()} == expected
    assert {profiles.credentials(each)["token"] for each in profiles.all().values()} == expected


def test_a_user_without_a_home_directory_hears_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_number: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)  # as for the number of a user in a container
    with pytest.raises(ValueError, match="set HOME or XDG_CONFIG_HOME"):
        Profiles.of_user()


def test_a_relative_place_of_configurations_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Profiles.of_user().directory == tmp_path / ".config/muniment"


async def test_a_client_is_made_from_a_profile(profiles: Profiles) -> None:
    profiles.put("work", Profile(URL, ADDRESS, protocol="Ours"))
    profiles.keep(Profile(URL, ADDRESS), apiKey="a secret")
    with Registry.from_profile("work") as registry:
        assert registry.account.api_key() == "a secret"  # no request was made
        assert "a secret" not in repr(vars(registry))
    async with AsyncRegistry.from_profile("work") as registry:
        assert await registry.account.api_key() == "a secret"
    with pytest.raises(ValueError, match="profile home not found"):
        Registry.from_profile("home")
