"""`python -m nimble.bench`, which is `nimble bench`."""

import sys

from nimble.cli import main

sys.exit(main(["bench", *sys.argv[1:]]))
