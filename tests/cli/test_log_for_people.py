"""Lines of the log for people: a stranger's text in them does not command the terminal."""

from __future__ import annotations

import pytest
import structlog

from muniment.cli.logs import configure_logs
from muniment.service.running.settings import Settings


def test_a_value_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings(log_format="console"))
    log = structlog.get_logger()
    log.error("refused", reason="\x1b[2Jgone", code="\u202eback")
    try:
        raise ValueError("\x1b]0;title\x07")  # noqa: TRY301 - its traceback is what matters
    except ValueError:
        log.exception("failed")
    written = capsys.readouterr().err
    assert r"reason=\u001b[2Jgone" in written
    assert r"ValueError: \u001b]0;title\u0007" in written
    assert "Traceback (most recent call last):\n" in written
    assert written.replace("\n", "").isprintable()
