"""Every page and file of the console. They are no part of the API: OpenAPI does not describe them."""

from __future__ import annotations

from typing import Final

from muniment.console import files
from muniment.console.pages import (
    account,
    addresses,
    find,
    functions,
    intent,
    intents,
    overview,
    service,
    triggers,
    wizard,
)

OPERATIONS: Final = (
    *files.OPERATIONS, *overview.OPERATIONS, *functions.OPERATIONS, *triggers.OPERATIONS, *wizard.OPERATIONS,
    *intents.OPERATIONS, *intent.OPERATIONS, *addresses.OPERATIONS, *account.OPERATIONS, *service.OPERATIONS,
    *find.OPERATIONS,
)  # fmt: skip
