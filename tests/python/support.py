"""What several test files share: equality to the last bit, and eager's own spread where it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map


def bits(tensor: Tensor) -> Tensor:
    """The values as bytes, in logical order; tells -0.0 from 0.0 and compares NaN equal to itself."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    # A copy of our own: contiguous() may return a tensor of one element with any strides.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    flat.copy_(tensor.detach().reshape(-1))
    return flat.view(torch.uint8)


def describe(tensor: Tensor) -> tuple:
    """Everything about a tensor that is not its values."""
    strides = tensor.stride() if tensor.layout == torch.strided else None
    return (
        tensor.device,
        tensor.dtype,
        tuple(tensor.shape),
        strides,
        tensor.layout,
        tensor.is_conj(),
        tensor.is_neg(),
    )


def same_bits(actual: Tensor, expected: Tensor) -> bool:
    return describe(actual) == describe(expected) and torch.equal(bits(actual), bits(expected))


def assert_same(actual: Any, expected: Any) -> None:
    """Two pytrees of the same structure, with the same bits in every tensor and everything else equal."""
    actual_leaves, actual_spec = tree_flatten(actual)
    expected_leaves, expected_spec = tree_flatten(expected)
    assert actual_spec == expected_spec, f"{actual_spec} instead of {expected_spec}"
    for index, (a, e) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        assert type(a) is type(e), f"leaf {index}: {type(a)} instead of {type(e)}"
        if not isinstance(e, Tensor):
            assert a == e, f"leaf {index}"
            continue
        assert describe(a) == describe(e), f"leaf {index}"
        differing = int((bits(a) != bits(e)).sum())
        assert not differing, f"leaf {index} differs in {differing} of {bits(e).numel()} bytes"


def is_same(actual: Any, expected: Any) -> bool:
    try:
        assert_same(actual, expected)
    except AssertionError:
        return False
    return True


def varies(call: Callable[[], Any], runs: int = 4) -> bool:
    """Whether eager's own answer differs from run to run, as it does where a kernel adds with atomics."""
    first = call()
    return any(not is_same(call(), first) for _ in range(runs - 1))


def assert_within_spread(actual: Any, call: Callable[[], Any], runs: int = 8) -> None:
    """Every element is no further from one of eager's answers than those lie from each other anywhere in the
    leaf: a few runs do not show the whole spread of each element."""
    eager = [tree_leaves(call()) for _ in range(runs)]
    for index, leaf in enumerate(tree_leaves(actual)):
        if not isinstance(leaf, Tensor):
            continue
        assert describe(leaf) == describe(eager[0][index]), f"leaf {index}"
        if leaf.numel() == 0:
            continue
        wide = torch.complex128 if leaf.is_complex() else torch.float64
        answers = torch.stack([run[index].to(wide).nan_to_num() for run in eager])
        spread = (answers - answers[0]).abs().amax()
        distance = (answers - leaf.to(wide).nan_to_num()).abs().amin(0).amax()
        assert distance <= spread, f"leaf {index} is {distance} from eager, which varies by {spread}"


def on_device(tree: Any, device: str) -> Any:
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, tree)


def random_states() -> list[Tensor]:
    """Where the default generators stand: the CPU's, and the GPU's once it is in use."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])]


def set_random_states(states: list[Tensor]) -> None:
    """To where random_states() once found them."""
    on_cpu, *on_gpu = states
    torch.set_rng_state(on_cpu)
    for state in on_gpu:
        torch.cuda.set_rng_state(state)


def storages(tree: Any) -> set[int]:
    """Identities of the memory behind a pytree's tensors."""
    return {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}


def small_model() -> nn.Module:
    """Of pictures of 4 by 4."""
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)]
    return nn.Sequential(*layers).eval()


def picture() -> Tensor:
    return torch.randn(2, 3, 4, 4)


def replay(fast: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls, and fails unless the answer came from a replay alone."""
    before = fast.stats["replays"]
    result = fast(*args, **kwargs)
    assert fast.stats["replays"] == before + 1, f"not a replay:\n{fast.explain()}"
    return result


def warm_up(fast: Any, *args: Any, **kwargs: Any) -> Any:
    """The two calls that come before the first replay: one is recorded, the next is run both ways."""
    fast(*args, **kwargs)
    fast(*args, **kwargs)
    return fast
