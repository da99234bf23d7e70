"""A graph and its backward pass, step by step: as data, as words and as a page."""
