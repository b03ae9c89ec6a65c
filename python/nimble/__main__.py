"""The command line: `python -m nimble`, or `nimble` once installed."""

import argparse
from pathlib import Path

from nimble import __version__


def cmake_path() -> Path:
    """What CMAKE_PREFIX_PATH has to hold for find_package(Nimble)."""
    return Path(__file__).parent / "lib" / "cmake"


def main() -> None:
    parser = argparse.ArgumentParser(prog="nimble", description="PyTorch programs, scheduled ahead of time")
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--cmake-path", action="store_true", help="print the path for CMAKE_PREFIX_PATH")
    arguments = parser.parse_args()
    if arguments.cmake_path:
        print(cmake_path())
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
