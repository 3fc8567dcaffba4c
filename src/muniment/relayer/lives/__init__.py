"""Whether a trigger still lives: the registry is followed, and what was seen of its end is kept."""
