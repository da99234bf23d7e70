"""An exercise for lessons that tests write, and the collections of answers to those of the course."""

import re

from project import ROOT

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


def answers(file):
    """(exercise, code) of every block of Python in a Markdown file with an exercise's name as heading."""
    text = (ROOT / "tests" / "learn" / file).read_text()
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        for code in re.findall(r"```python\n(.*?)\n```", part, re.DOTALL):
            yield part.split("\n")[0], code
