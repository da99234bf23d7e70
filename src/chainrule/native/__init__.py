"""The engine in C: `engine.c`, and the writer of the header that it gets from the op table."""
