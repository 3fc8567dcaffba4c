"""When triggers are due, and whose run is next: ticks, windows, turns. Pure: no await, and the time is a parameter."""
