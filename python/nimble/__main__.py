"""`python -m nimble`, which is `nimble`."""

import sys

from nimble.cli import main

if __name__ == "__main__":
    sys.exit(main())
