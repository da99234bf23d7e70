"""What runs a contestant's code: a module each, whose classes are Runners made from a problem and a file's solution.

`LOOPS` names what its user writes beyond the file: the functions, or the sources in C, whose lines count.
"""
