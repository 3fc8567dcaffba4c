"""Invalid URLs of databases, and the messages about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from muniment.cli.main import main


@pytest.mark.parametrize("url", ["postgresql://u:hid/+den@127.0.0.1/x", "postgresql://u:hidden@127.0.0.1:99999/x"])
@pytest.mark.parametrize("command", ["migrate", "verify", "operators list", "serve --port 0", "runs prune --older 30d"])
def test_no_part_of_a_password_is_said(tmp_path: Path, command: str, url: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--data-dir", str(tmp_path), "--database-url", url])
    assert result.exit_code in {1, 2}
    assert "not a PostgreSQL URL; in a password, write / as" in result.output
    assert "hid" not in result.output
    assert "99999" not in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []
