"""Traces for a collector of OpenTelemetry. Only this package imports OpenTelemetry, and only when traces are on.

`parents` reads the trace of a request, `opening` makes the `Tracer` of a process, `export` sends spans in a thread.
"""
