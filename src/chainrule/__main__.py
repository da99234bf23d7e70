"""`python -m chainrule` is the command line."""

import sys

from chainrule.cli import main

if __name__ == "__main__":
    sys.exit(main())
