"""Entry of `python -m motley.export`. From Python, `motley.export` is the function."""

import sys

from motley.command import main

if __name__ == "__main__":
    sys.exit(main())
