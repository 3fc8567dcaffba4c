"""The pages of the console, a module for each noun. They are no part of the API: OpenAPI does not describe them."""

from __future__ import annotations

from typing import Final

from muniment.service.console.page import get_file, get_file_of_folder, get_robots
from muniment.service.console.pages import account, find, functions, intents, log, overview, runs, triggers, wizard

OPERATIONS: Final = (
    overview.overview, overview.service_page, find.find, account.account_page, overview.address_page,
    functions.list_page, functions.function_page, functions.deploy_page, triggers.list_page, triggers.trigger_page,
    wizard.wizard_page, runs.list_page, runs.run_page, intents.list_page, intents.intent_page, log.log_page,
    log.trigger_proof, log.function_proof, log.deactivation_proof, get_file,
    get_file_of_folder, get_robots,
)  # fmt: skip
