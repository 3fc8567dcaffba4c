"""The costs of requests, in units. A unit is 25 µs of CPU: a little more than a read of a single record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from muniment.protocol import errors
from muniment.protocol.errors import Refusal

UNIT_NS: Final = 25_000

# The free part of a long read: a page at the largest offset takes less, and its query was charged.
LONG_READ_NS_FREE: Final = 5_000_000

# The rate limit that decides whether an operation may run. `client` counts units; `login` and `stop` count requests.
# Deactivations have their own limit, which a flood of other requests from the same address cannot use up. `health`
# counts units in a bucket of its own, so that other requests of an address never refuse its probes.
Asked = Literal["client", "health", "login", "stop"]

# Charged to the client afterwards, on top: a wrong signature or credential, and a failed login, which was compared with
# the nonces of every slot, window and secret.
DEBTS: Final[Mapping[type[Refusal], int]] = {
    errors.SignatureMismatch: 8,
    errors.NotTheOwner: 8,
    errors.InvalidToken: 8,
    errors.InvalidApiKey: 8,
    errors.InvalidOperatorKey: 8,
    errors.LoginFailed: 100,
}
# Bytes of a body that the units of an operation include, and further bytes for one unit more: JSON of numbers takes up
# to 90 ns a byte, texts a tenth of that.
BODY_BYTES_FREE: Final = 4 * 1024
BODY_BYTES_PER_UNIT: Final = 512
# The same for a head: its target, and the names and values of its fields take up to 70 ns a byte to decode, split and
# compare. Browsers and tokens send about as much as is free.
HEAD_BYTES_FREE: Final = 1024
HEAD_BYTES_PER_UNIT: Final = 512


class Shed(Enum):
    """When an operation is refused because the process is overloaded; `limits.overload` has the levels."""

    EARLY = "early"  # heavy work that can wait: uploads, balances, previews
    MIDDLE = "middle"  # nonces, content; listings by offset
    LATE = "late"  # creates and other writes
    READ = "read"  # single records: a growing share of them
    PAGE = "page"  # listings: as single records, but those by offset as MIDDLE
    NEVER = "never"  # health, deactivations, the writes of operators


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an operation.

    `units` are charged before it runs; 0: it is never limited. With the policy `login` or `stop`, one request is
    charged to that policy before it runs, and the units to the client afterwards. Costs that depend on sizes are
    charged afterwards: the bytes of the body and of the answer, and the CPU time that was measured. A query is charged
    for what it asks for, by `units` of the record that it was read into.

    `tests/api/test_costs_measured.py` compares all of them with the CPU time.
    """

    units: int
    policy: Asked = "client"
    received_bytes_per_unit: int = 0
    sent_bytes_per_unit: int = 0
    counts_cpu: bool = False

    def owed(self, *, received: int = 0, sent: int = 0, cpu_ns: int = 0) -> int:
        """Units that are due on top of `units`: for bytes, and nanoseconds of CPU time."""
        owed = cpu_ns // UNIT_NS if self.counts_cpu else 0
        if self.received_bytes_per_unit:
            owed += received // self.received_bytes_per_unit
        if self.sent_bytes_per_unit:
            owed += sent // self.sent_bytes_per_unit
        return owed


READ: Final = Cost(1)
# A read with a token, whose signature takes a fifth of a millisecond to verify.
TOKEN_READ: Final = Cost(16)
# A write with a token. The process spends most of its time on the token; the write itself waits for the database.
TOKEN_WRITE: Final = Cost(16)
NONCE: Final = Cost(4, policy="login")
LOGIN: Final = Cost(8, policy="login")
# A listing, in addition to the cost of its query.
PAGE: Final = Cost(2, sent_bytes_per_unit=64 * 1024)
# Content that is in memory already.
CONTENT: Final = Cost(1, sent_bytes_per_unit=64 * 1024)
# A file or a block, which a thread reads and hashes.
FILE: Final = Cost(20, sent_bytes_per_unit=64 * 1024)
# Blocks along a path, in a CAR.
BLOCKS: Final = Cost(36, sent_bytes_per_unit=64 * 1024)
# A bundle is received, hashed twice and written to the disk, and its module is checked.
UPLOAD: Final = Cost(64, received_bytes_per_unit=5 * 1024, counts_cpu=True)
# Two units for each listed signature, which takes 135 bytes of the body: quotes, comma and 132 characters.
DEACTIVATION: Final = Cost(8, policy="stop", received_bytes_per_unit=135 // 2)
BALANCES: Final = Cost(400)
# Health and readiness. The checks have bounds of their own (`muniment.service.app.operations`), and a probe must be
# answered even with a low limit of units.
HEALTH: Final = Cost(1, policy="health")
FREE: Final = Cost(0)
