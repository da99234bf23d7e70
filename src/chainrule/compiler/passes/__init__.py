"""From a flat graph to an array program, and from that to better ones: one pass per file."""
