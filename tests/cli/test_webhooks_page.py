"""The code of docs/use/webhooks.md, as a reader runs it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from muniment.cli.main import main
from muniment.service.auth.secrets import RingFile
from ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "use" / "webhooks.md"
(RECEIVER,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
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
