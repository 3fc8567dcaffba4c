"""What a stranger may use of a machine: rate limits that its processes count together, and what goes under overload."""
