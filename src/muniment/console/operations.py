"""Every page and file of the console. They are no part of the API: OpenAPI does not describe them."""

from __future__ import annotations

from typing import Final

from muniment.console.files import OPERATIONS as FILES
from muniment.console.pages.overview import OPERATIONS as OVERVIEW
from muniment.console.pages.triggers import OPERATIONS as TRIGGERS

OPERATIONS: Final = (*FILES, *OVERVIEW, *TRIGGERS)
