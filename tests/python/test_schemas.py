"""The recorder believes an operator's schema on what it writes, but for a few operators known to lie.

Every operator that PyTorch's samples reach is called below autograd, as the recorder sees it, and must leave
the bytes of all arguments alone that neither its schema nor this list names.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext, suppress
from itertools import islice

import pytest
import torch
from operator_samples import operators
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The engine's table of the same (writes_argument_unannounced) has the CUDA operators as well.
UNANNOUNCED_WRITES = {
    "aten::native_batch_norm": {"running_mean", "running_var"},
    "aten::mkldnn_rnn_layer_backward": {"workspace"},
}
# Views though the schema does not say so.
UNANNOUNCED_VIEWS = {"aten::_unsafe_view", "aten::unsafe_split"}


def storage_of(tensor: Tensor) -> int | None:
    # A zero tensor stands for zeros without having any memory.
    if tensor.layout != torch.strided or tensor._is_zerotensor():
        return None
    return tensor.untyped_storage()._cdata


def memory_of(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).clone()


class SchemaWatch(TorchDispatchMode):
    """Notes every call that does what its schema does not say."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: set[tuple[str, str]] = set()
        self.views: set[str] = set()
        self.untagged_randomness: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        tensors, written = [], set()
        for index, argument in enumerate(func._schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            for tensor in tree_leaves(value):
                if isinstance(tensor, Tensor) and storage_of(tensor) is not None:
                    tensors.append((argument.name, tensor))
                    if argument.alias_info is not None and argument.alias_info.is_write:
                        written.add(storage_of(tensor))
        watched = [(n, t, memory_of(t)) for n, t in tensors if storage_of(t) not in written]
        random_numbers = torch.get_rng_state()

        result = func(*args, **kwargs)

        for argument, tensor, before in watched:
            if not torch.equal(before, memory_of(tensor)):
                self.writes.add((name, argument))
        if not any(returned.alias_info for returned in func._schema.returns):
            inputs = {storage_of(tensor) for _, tensor in tensors}
            results = {storage_of(t) for t in tree_leaves(result) if isinstance(t, Tensor)} - {None}
            if inputs & results:
                self.views.add(name)
        drew = not torch.equal(random_numbers, torch.get_rng_state())
        if drew and torch.Tag.nondeterministic_seeded not in func.tags:
            self.untagged_randomness.add(name)
        return result


def assert_schemas_hold(watch: SchemaWatch) -> None:
    unknown = {(name, arg) for name, arg in watch.writes if arg not in UNANNOUNCED_WRITES.get(name, ())}
    assert not unknown, "written, though the schema does not say so"
    assert watch.views <= UNANNOUNCED_VIEWS, "results share memory with arguments unannounced"
    assert not watch.untagged_randomness, "draws random numbers without the tag"


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.full, id="all"), pytest.param(6, id="part")]
)
def test_operators_write_only_what_their_schema_says(step):
    watch = SchemaWatch()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for operator in islice(operators(), 0, None, step):
            for call in operator.calls(4):
                # Some samples need what this machine does not have.
                with watch, suppress(Exception):
                    operator.function(*call.args, **call.kwargs)
    assert_schemas_hold(watch)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("no_grad", [True, False])
def test_modules_with_state_write_only_what_is_known(training, no_grad):
    watch = SchemaWatch()
    pictures, sequence = torch.randn(2, 4, 5, 5), torch.randn(3, 2, 4)
    for module, value in [
        (nn.BatchNorm2d(4), pictures),
        (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), pictures),
        (nn.LSTM(4, 5, num_layers=2, dropout=0.1), sequence),
        (nn.GRU(4, 5), sequence),
        (nn.Embedding(5, 4, max_norm=0.5), torch.tensor([1, 2])),
        (nn.TransformerEncoderLayer(4, 2), sequence),
    ]:
        with watch, torch.no_grad() if no_grad else nullcontext():
            result = tree_leaves(module.train(training)(value))[0]
            if not no_grad:
                result.sum().backward()
    assert_schemas_hold(watch)
    if training:
        assert ("aten::native_batch_norm", "running_mean") in watch.writes, "the watch sees nothing"
