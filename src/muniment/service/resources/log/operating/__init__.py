"""Operator commands of the log: status, freeze, resume, begin, rotate."""
