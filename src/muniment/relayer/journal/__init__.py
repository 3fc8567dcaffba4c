"""What a relayer remembers, on its disk: triggers, runs that are planned, have run, and are published."""
