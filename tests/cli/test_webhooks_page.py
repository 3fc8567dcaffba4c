"""The code of docs/use/webhooks.md, as a reader runs it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from muniment.cli.main import main
from muniment.service.auth.secrets import RingFile
from muniment.service.resources.webhooks.sending import HookKeys, Signers, signed_fields
from ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "use" / "webhooks.md"
RECEIVER, CHECK = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
SECONDS_MAX = 60


@contextmanager
def receiver(script: Path, secret: str, port: int) -> Generator[None]:
    """The receiver of the page as a process."""
    environ = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    with subprocess.Popen([sys.executable, str(script)], env=environ, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + SECONDS_MAX
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield
        finally:
            process.kill()


def test_the_receiver_of_the_page_answers_the_challenge_and_refuses_what_others_sign(tmp_path: Path) -> None:
    data, script, port = tmp_path / "data", tmp_path / "receiver.py", free_port()
    script.write_text(RECEIVER)
    RingFile(data)

    def run(*arguments: str) -> str:
        environ = {"MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true"}
        return CliRunner().invoke(main, [*arguments, "--data-dir", str(data)], env=environ).output

    run("migrate")
    hook_id, secret = run("webhooks", "add", f"http://127.0.0.1:{port}/").split()
    with receiver(script, "whsec_" + b64encode(b"another" * 4).decode(), port):
        assert "is pending: http-401" in run("webhooks", "test", hook_id)
    with receiver(script, secret, port):
        assert "is active: delivered" in run("webhooks", "test", hook_id)


def test_the_check_with_the_public_key_takes_signed_requests_alone() -> None:
    made: dict[str, Any] = {}
    exec(CHECK, made)  # noqa: S102 - the code of our own page
    is_signed: Callable[[bytes, dict[str, str], list[str]], bool] = made["is_signed"]
    ours, other = (HookKeys(b"m" * 32, Ed25519PrivateKey.from_private_bytes(bytes((n,)) * 32)) for n in (1, 2))
    headers = dict(signed_fields(Signers(ours, None), "ZS0wYmFkY2FmZS0xMDA", 1_795_204_080, b'{"a":1}'))
    assert is_signed(b'{"a":1}', headers, [other.public_text, ours.public_text])
    assert not is_signed(b'{"a":1}', headers, [other.public_text])
    assert not is_signed(b'{"a":2}', headers, [ours.public_text])
