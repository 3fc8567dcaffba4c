"""A day of sample data for a demo: functions, triggers, runs and intents of the twenty-four hours before now.

Everything enters as clients send it: signed by wallets, checked by the service's own rules, over its HTTP interface. No
interface takes the time of a record, so an application of this process answers, whose clock begins a day ago and walks
to now (`filling`). It ends before the service of the demo starts. A running service never has such a clock.

The wallets are the published development accounts of anvil and Hardhat, so nobody takes the records for real ones.
"""
