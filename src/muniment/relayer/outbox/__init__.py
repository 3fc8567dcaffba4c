"""What the journal has and the registry does not: runs and their intents, published until they are there."""
