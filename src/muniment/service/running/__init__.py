"""What a process runs on: settings, limits, metrics, traces, its clock, memory shared with other processes."""
