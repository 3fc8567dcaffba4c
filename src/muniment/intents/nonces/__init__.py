"""The nonces of intents of the second form, of which the settlement contract would pay each intent."""
