"""The sandbox of functions: what a module may import, the texts of its memory, limits, a process for each run.

It knows no network and no clock: what a module asks is answered by the caller of `Sandbox.run_module`.
"""
