"""Packages that only parts of Nimble use: whoever misses one is told what to install."""

from __future__ import annotations

import importlib.metadata
import importlib.util

# Where any version would not do.
PINNED = {"torchvision": "torchvision==0.26.0"}  # the one that is built against torch 2.11


class MissingPackage(ImportError):
    """A package is not installed; the message holds the command that installs it."""


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def need(package: str, why: str = "") -> None:
    """Nothing where `package` can be imported; else MissingPackage."""
    if not is_installed(package):
        purpose = f" {why}" if why else ""
        raise MissingPackage(
            f"{package} is not installed{purpose}: pip install {PINNED.get(package, package)}"
        )


def version_of(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
