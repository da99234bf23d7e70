"""An exercise for lessons that tests write."""

DOUBLE = """```exercise name=double
prompt: Double it.
```
```starter
def double(x):
    ...
```
```solution
def double(x):
    return 2 * x
```
```check
expect("double(3)", double(3), 6)
```
"""
