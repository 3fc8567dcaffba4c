"""Outgoing requests, bounded in size and time: to hosts that an operator named, and to receivers of webhooks."""

from __future__ import annotations

from muniment.outgoing.addresses import is_public as is_public
from muniment.outgoing.answers import Answer as Answer, Receipt as Receipt, Unreachable as Unreachable
from muniment.outgoing.client import (
    ANSWER_BYTES_MAX as ANSWER_BYTES_MAX,
    SMALL_ANSWER_BYTES_MAX as SMALL_ANSWER_BYTES_MAX,
    Outgoing as Outgoing,
)
