"""What an operator does with the log: look at it, stop it, let it go on, and begin its next epoch."""
