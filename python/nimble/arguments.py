"""Arguments and results of any structure, as the engine sees them: tensors, and a number for all the rest."""

import dataclasses
import itertools
import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nimble import _C


class _Itself:
    """Stands for an object that is equal to itself alone, and for no other that may be found at its address later.
    Whoever remembers it does not keep the object."""

    def __init__(self, value: Any):
        self._hash = id(value)
        try:
            self._value = weakref.ref(value)
        except TypeError:  # then it is kept
            self._value = lambda: value

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._value() is not None and self._value() is other._value()


def _hashes_its_fields(kind: type) -> bool:
    """As dataclasses do by themselves: one that says itself what makes it equal is taken at its word."""
    code = getattr(kind.__hash__, "__code__", None)
    return code is not None and code.co_filename == "<string>"  # where dataclasses compile what they write


def _is_scalar_of_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _value_key(value: Any) -> tuple:
    """Equal for values that make no difference to the function. 1, 1.0 and True are equal in Python, and 0.0 and -0.0;
    not here, nor are tuples, sets and dataclasses of them."""
    kind = type(value)
    if isinstance(value, float):
        return (kind, value.hex())
    if isinstance(value, complex):
        return (kind, value.real.hex(), value.imag.hex())
    if value is not None and (kind.__hash__ is object.__hash__ or isinstance(value, torch.Tensor)):
        return (_Itself(value),)
    try:
        hash(value)
    except TypeError:
        return (_Itself(value),)
    if isinstance(value, tuple | frozenset):
        return (kind, *map(_value_key, value))
    if dataclasses.is_dataclass(value) and _hashes_its_fields(kind):
        compared = [field.name for field in dataclasses.fields(value) if field.compare]
        return (kind, *(_value_key(getattr(value, name)) for name in compared))
    if _is_scalar_of_numpy(value):
        return (kind, value.dtype, value.tobytes())
    return (kind, value)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Size)  # would come back as a plain tuple


def _are_tensors(args: tuple, tensor: type = torch.Tensor) -> bool:
    """And nothing else: their classes have a say in what operators do."""
    for arg in args:  # noqa: SIM110 - at every call, where a generator would take three times as long
        if type(arg) is not tensor:
            return False
    return True


# What a call is asked besides tensors, mostly. Values of these types are equal only if they mean the same.
_SIMPLE = frozenset({type(None), bool, int, str})


def _look(args: tuple, kwargs: dict, tensor: type = torch.Tensor) -> tuple[list[torch.Tensor], tuple] | None:
    """The tensors, and all else that a call consists of, if no argument holds others: what taking arguments apart would
    find, at a tenth of its cost. At every call of a model with keyword arguments, whose order a function may see."""
    tensors = []
    rest = [len(args), *kwargs]
    for value in (*args, *kwargs.values()):
        kind = type(value)
        rest.append(kind)
        if kind is tensor:
            tensors.append(value)
        elif kind in _SIMPLE:
            rest.append(value)
        else:
            return None
    return tensors, tuple(rest)


# Classes of tensors that are nothing but tensors. Others have a say in what operators do and return.
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


class Structure:
    """How tensors are arranged in arguments or results, and what stands between them."""

    def __init__(self, leaves: list, spec: pytree.TreeSpec):
        self.spec = spec
        self.is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        self.others = [
            None if is_tensor else leaf for leaf, is_tensor in zip(leaves, self.is_tensor, strict=True)
        ]
        self.is_one_tensor = len(leaves) == 1 and self.is_tensor[0] and spec.is_leaf()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.key() == other.key()

    def key(self) -> tuple:
        """Equal for structures that hold the same values besides tensors."""
        return self.spec, tuple(t or _value_key(o) for t, o in zip(self.is_tensor, self.others, strict=True))

    def fill(self, tensors: list[torch.Tensor]) -> Any:
        if self.is_one_tensor:
            return tensors[0]
        given = iter(tensors)
        leaves = [
            next(given) if is_tensor else other
            for other, is_tensor in zip(self.others, self.is_tensor, strict=True)
        ]
        return pytree.tree_unflatten(leaves, self.spec)


def take_apart(value: Any) -> tuple[list[torch.Tensor], Structure]:
    leaves, spec = pytree.tree_flatten(value, is_leaf=_is_leaf)
    structure = Structure(leaves, spec)
    return [leaf for leaf, is_tensor in zip(leaves, structure.is_tensor, strict=True) if is_tensor], structure


def class_of_its_own(tensors: Iterable[torch.Tensor]) -> str | None:
    """The name of the first class among these that is more than a tensor's."""
    return next((type(tensor).__name__ for tensor in tensors if type(tensor) not in _TENSORS), None)


class OwnTensorClass(_C.RecordError):
    """An argument of a class of tensors that says itself what operators do with it."""


class Arguments:
    """Numbers the structures that one function is called with, so that the engine can compare them at no cost.

    A function that is called with another value each time is no reason to remember all of them: at `most` so many."""

    def __init__(self, most: int):
        self._most = most
        self._numbers = itertools.count()  # none is ever given twice
        self._variants: dict[Any, int] = {}
        self._plain: dict[int, int] = {}  # how many tensors, all positional: variant
        self._seen: dict[tuple, int] = {}  # what a look showed: variant

    def flatten(self, args: tuple, kwargs: dict) -> tuple[Sequence[torch.Tensor], int]:
        """Raises OwnTensorClass where an argument is a tensor and something more."""
        if not kwargs and (variant := self._plain.get(len(args))) is not None and _are_tensors(args):
            return args, variant
        look = _look(args, kwargs)
        if look and (variant := self._seen.get(look[1])) is not None:
            return look[0], variant
        leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=_is_leaf)
        structure = Structure(leaves, spec)
        tensors = [leaf for leaf, is_tensor in zip(leaves, structure.is_tensor, strict=True) if is_tensor]
        if name := class_of_its_own(tensors):
            raise OwnTensorClass(
                f"[nimble::call] an argument is a {name}, a class of tensors of its own, whose "
                "functions a replay would leave out. Pass a plain tensor: x.as_subclass(torch.Tensor)"
            )
        variant = self._number_of(structure.key())
        if not kwargs and leaves and _are_tensors(args):
            self._plain[len(args)] = variant
        if look:
            self._seen[look[1]] = variant
        return tensors, variant

    def clear(self) -> None:
        """Forgets all of them, and what it kept for that."""
        for known in (self._variants, self._plain, self._seen):
            known.clear()

    def _number_of(self, key: tuple) -> int:
        number = self._variants.get(key)
        if number is not None:
            return number
        if len(self._variants) >= self._most:
            self.clear()
        number = self._variants[key] = next(self._numbers)
        return number
