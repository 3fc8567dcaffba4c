"""Triggers: consents signed by a wallet to run a registered function on a schedule, on an event or once."""
