"""From Python to a flat graph: symbols that record what a function does, and graphs laid flat."""
