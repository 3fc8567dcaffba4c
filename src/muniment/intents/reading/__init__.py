"""What is read of intents beside their records: which one a hash names, when one moved, and how many came."""
