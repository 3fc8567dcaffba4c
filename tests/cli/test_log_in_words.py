"""`muniment login` at a registry that says its URL: the signature names it, and nothing is signed for another one."""

from __future__ import annotations

from pathlib import Path

from builders import Wallet
from ports import free_port
from service import Service
from using import Person


def test_a_person_logs_in_by_the_url_of_the_registry_and_signs_nothing_at_another_one(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with Service(tmp_path / "data", port=port, environment={"MUNIMENT_PUBLIC_URL": url}) as service:
        assert service.url == url
        person = Person(service, tmp_path / "home", Wallet(91))
        person.done("login")
        relayed = person.run("login", MUNIMENT_URL=f"http://localhost:{port}")
        assert relayed.exit_code == 5
        assert "nothing was signed" in relayed.stderr
        assert url in relayed.stderr
