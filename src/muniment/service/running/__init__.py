"""The base of a process: settings, limits, metrics, traces; its clock."""
