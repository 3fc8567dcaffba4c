"""`muniment login` at a registry that says its URL: the signature names it, and nothing is signed for another one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import Wallet
from middle import Answered, Asked, Forward, before
from ports import free_port
from service import Service
from using import Person


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A registry that says its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with Service(tmp_path_factory.mktemp("words"), port=port, environment={"MUNIMENT_PUBLIC_URL": url}) as service:
        assert service.url == url
        yield service


def test_a_person_logs_in_by_the_url_of_the_registry_and_signs_nothing_at_another_one(
    served: Service, tmp_path: Path
) -> None:
    person = Person(served, tmp_path / "home", Wallet(91))
    person.done("login")
    refused = person.run("login", MUNIMENT_URL=served.url.replace("127.0.0.1", "localhost"))
    assert refused.exit_code == 1, "nobody has lied"
    assert "FORGED" not in refused.stderr
    assert "Nothing was signed" in refused.stderr
    assert f"--url {served.url}" in refused.stderr


def bare(asked: Asked, forward: Forward) -> Answered:
    """A registry that leaves the words out."""
    answer = forward()
    if asked.target != "/users/nonce":
        return answer
    members = json.loads(answer.content)
    return answer._replace(content=json.dumps({**members, "publicUrl": None}).encode())


def test_a_registry_that_gave_words_gets_no_bare_nonce_in_a_later_command(served: Service, tmp_path: Path) -> None:
    person = Person(served, tmp_path / "home", Wallet(92))
    with before(served.url) as middle, middle.behaving(bare):
        assert person.done("api-key", "--url", middle.url), "a registry of this machine that never gave words"
        words = tmp_path / "home/config/muniment/log-ins-in-words"
        assert not words.exists()
        person.done("api-key")
        assert words.read_text() == f"{served.url}\n"
        words.write_text(f"{middle.url}\n")
        for command in (["login"], ["api-key"], ["api-key", "rotate"], ["balances"], ["login", "--bare-nonce"]):
            refused = person.run(*command, "--url", middle.url)
            assert (refused.exit_code, "Nothing was signed" in refused.stderr) == (1, True), command
            assert str(words) in refused.stderr


def test_a_bare_nonce_of_another_host_needs_the_option(tmp_path: Path) -> None:
    """The registry of another host is one of this machine, which is reached as by a proxy."""
    with Service(tmp_path / "data") as service:
        person = Person(service, tmp_path / "home", Wallet(93))
        place = {"MUNIMENT_URL": "http://registry.example.org", "HTTP_PROXY": service.url, "NO_PROXY": ""}
        refused = person.run("api-key", **place)
        assert (refused.exit_code, "--bare-nonce" in refused.stderr) == (1, True), refused.exception
        assert person.done("api-key", "--bare-nonce", **place)
