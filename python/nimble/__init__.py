"""Nimble runs PyTorch programs with almost no scheduling cost and on as many streams as they allow."""

from importlib.metadata import version

__version__ = version("nimble")
