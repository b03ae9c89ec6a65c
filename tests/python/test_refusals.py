"""What turns tensor data into host values cannot be replayed: it is refused by name, with the user's line."""

from __future__ import annotations

import ctypes
import random
import warnings

import numpy
import pytest
import torch
from support import assert_same, replay, warm_up
from torch import Tensor
from torch._higher_order_ops import while_loop
from torch.utils._python_dispatch import _len_torch_dispatch_stack

import nimble

pytestmark = pytest.mark.usefixtures("without_grad")


@pytest.fixture
def without_grad():
    with torch.no_grad():
        yield


# Each reads data on the line after its signature, which the refusal must name.


def reads_an_item(x: Tensor) -> Tensor:
    factor = x.sum().item()
    return x * factor


def makes_a_float(x: Tensor) -> Tensor:
    factor = float(x.sum())
    return x * factor


def makes_an_int(x: Tensor) -> Tensor:
    count = int(x.sum())
    return x + count


def branches_on_data(x: Tensor) -> Tensor:
    positive = bool(x.sum() > 0)
    return x if positive else -x


def branches_with_if(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def counts_nonzero(x: Tensor) -> Tensor:
    where = x.nonzero()
    return where * 2


def indexes_by_mask(x: Tensor) -> Tensor:
    positive = x[x > 0]
    return positive * 2


def selects_by_mask(x: Tensor) -> Tensor:
    positive = x.masked_select(x > 0)
    return positive * 2


def finds_unique_values(x: Tensor) -> Tensor:
    values = x.round().unique()
    return values * 2


def asks_where(x: Tensor) -> Tensor:
    (rows,) = torch.where(x > 0)
    return rows * 2


def asks_whether_equal(x: Tensor) -> Tensor:
    same = torch.equal(x, x * 1)
    return x if same else x * 2


def asks_whether_close(x: Tensor) -> Tensor:
    close = torch.allclose(x, x * 1)
    return x if close else x * 2


def makes_a_list(x: Tensor) -> Tensor:
    values = x.tolist()
    return x * values[0]


def makes_an_array(x: Tensor) -> Tensor:
    array = x.numpy()
    return x * float(array[0])


def makes_an_array_by_protocol(x: Tensor) -> Tensor:
    array = numpy.asarray(x)
    return x * float(array[0])


def prints_itself(x: Tensor) -> Tensor:
    print(x)
    return x * 2


def formats_itself(x: Tensor) -> Tensor:
    text = f"{x.sum():.3f}"
    return x * len(text)


def takes_its_address(x: Tensor) -> Tensor:
    address = x.data_ptr()
    return x * (address % 7)


def repeats_by_data(x: Tensor) -> Tensor:
    repeated = x.repeat_interleave((x > 0).long())
    return repeated * 2


def asks_for_singular_values_alone(x: Tensor) -> Tensor:
    values = torch.linalg.svdvals(torch.outer(x, x))
    return x * values.sum()


def asks_for_eigenvalues_alone(x: Tensor) -> Tensor:
    values = torch.linalg.eigvalsh(torch.outer(x, x))
    return x * values.sum()


CASES = [
    (reads_an_item, "aten::_local_scalar_dense"),
    (makes_a_float, "aten::_local_scalar_dense"),
    (makes_an_int, "aten::_local_scalar_dense"),
    (branches_on_data, "aten::_local_scalar_dense"),
    (branches_with_if, "aten::_local_scalar_dense"),
    (counts_nonzero, "aten::nonzero"),
    (indexes_by_mask, "aten::index"),
    (selects_by_mask, "aten::masked_select"),
    (finds_unique_values, "aten::_unique2"),
    (asks_where, "aten::nonzero"),
    (asks_whether_equal, "aten::equal"),
    (asks_whether_close, "aten::allclose"),
    (makes_a_list, "tolist"),
    (makes_an_array, "numpy"),
    (makes_an_array_by_protocol, "array"),
    (prints_itself, "print"),
    (formats_itself, "format"),
    (takes_its_address, "data_ptr"),
    (repeats_by_data, "aten::repeat_interleave"),
]
every_case = pytest.mark.parametrize(
    ("function", "operator"), CASES, ids=[function.__name__ for function, _ in CASES]
)


def place_of(function) -> str:
    """file:line of the line after the function's signature."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + 1}"


@every_case
def test_prepare_raises_with_operator_place_and_advice(function, operator):
    with pytest.raises(nimble.RecordError) as refusal:
        nimble.compile(function).prepare(torch.randn(5))
    message = str(refusal.value)
    assert operator in message
    assert place_of(function) in message
    # What, where, and then a sentence on what to do.
    assert len(message.split(place_of(function))[1]) > 30


@every_case
def test_a_strict_call_raises_the_same(function, operator):
    with pytest.raises(nimble.RecordError, match=operator):
        nimble.compile(function, strict=True)(torch.randn(5))


@every_case
def test_a_plain_call_warns_once_and_stays_eager(function, operator):
    fast = nimble.compile(function)
    x = torch.tensor([1.0, -2.0, 3.5, 0.0, 2.0])
    with pytest.warns(nimble.FallbackWarning, match=operator) as caught:
        first = fast(x)
    assert len(caught) == 1
    assert place_of(function) in str(caught[0].message)
    assert_same(first, function(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in (x, -x, x * 2, x.roll(1)):
            if function is not takes_its_address:
                assert_same(fast(y), function(y))
    assert fast.stats["replays"] == 0
    assert operator in fast.explain()


@every_case
def test_a_refusal_leaves_no_mode_behind(function, operator):
    with pytest.raises(nimble.RecordError):
        nimble.compile(function).prepare(torch.randn(5))
    assert _len_torch_dispatch_stack() == 0
    assert not torch.overrides._len_torch_function_stack()
    # Reading data outside of a recording is nobody's business.
    assert torch.ones(3).sum().item() == 3.0


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (asks_for_singular_values_alone, "aten::_linalg_svd"),
        (asks_for_eigenvalues_alone, "aten::_linalg_eigh"),
    ],
)
def test_a_decomposition_that_is_watched_into_other_rounding_is_refused(function, operator):
    with pytest.raises(nimble.RecordError) as caught:
        nimble.compile(function).prepare(torch.randn(5))
    assert operator in str(caught.value)
    assert place_of(function) in str(caught.value)


def test_memory_that_no_operator_filled_is_refused_where_it_is_read():
    def adds_memory_filled_unseen(x):
        memory = torch.empty(5)
        ctypes.memset(memory.data_ptr(), 0, memory.nbytes)  # as a kernel beside the dispatcher does
        return x + memory

    with pytest.raises(nimble.RecordError, match=r"aten::add .* memory that no operator filled") as caught:
        nimble.compile(adds_memory_filled_unseen).prepare(torch.randn(5))
    line = adds_memory_filled_unseen.__code__.co_firstlineno + 3
    assert f"{__file__}:{line}" in str(caught.value)
    assert "torch.library" in str(caught.value)


def test_memory_that_no_operator_filled_is_refused_as_a_result():
    def returns_memory_filled_unseen(x):
        memory = torch.empty(5)
        ctypes.memset(memory.data_ptr(), 0, memory.nbytes)
        return x * 2, memory

    with pytest.raises(nimble.RecordError, match="a result lies in memory that no operator filled"):
        nimble.compile(returns_memory_filled_unseen).prepare(torch.randn(5))


def test_memory_whose_values_count_nothing_is_no_refusal():
    def function(x):
        scores = torch.baddbmm(torch.empty(2, 3, 3), x, x.mT, beta=0)
        return scores + torch.ones_like(torch.empty(3))

    fast = nimble.compile(function, strict=True).prepare(torch.randn(2, 3, 4))
    x = torch.randn(2, 3, 4)
    assert_same(replay(fast, x), function(x))


def test_the_warning_names_the_line_inside_a_helper():
    def helper(x):
        return x.sum().item()

    with pytest.raises(nimble.RecordError, match=f"{__file__}:{helper.__code__.co_firstlineno + 1}"):
        nimble.compile(lambda x: x * helper(x)).prepare(torch.randn(3))


def test_the_warning_is_given_once_for_each_compiled_object():
    for _ in range(2):
        with pytest.warns(nimble.FallbackWarning):
            nimble.compile(reads_an_item)(torch.randn(3))


def test_a_refused_shape_does_not_refuse_others():
    def only_small_ones_read(x):
        if x.numel() < 4:
            return x * x.sum().item()
        return x * 2

    fast = nimble.compile(only_small_ones_read)
    with pytest.warns(nimble.FallbackWarning):
        fast(torch.randn(3))
    x = torch.randn(8)
    assert_same(replay(warm_up(fast, x), x), x * 2)


def test_reading_a_constant_is_no_refusal():
    def function(x):
        steps = torch.arange(4).sum().item()
        if (torch.ones(3) == 1).all():
            steps += 1
        return x * steps

    fast = nimble.compile(function, strict=True).prepare(torch.randn(5))
    x = torch.randn(5)
    assert_same(replay(fast, x), x * 7)


def test_asking_for_shapes_and_types_is_no_refusal():
    def function(x):
        rows, columns = x.shape
        return x.reshape(columns, rows) * x.ndim * len(x) if x.is_floating_point() else x

    fast = nimble.compile(function, strict=True).prepare(torch.randn(2, 3))
    x = torch.randn(2, 3)
    assert_same(replay(fast, x), function(x))


def test_integer_indices_are_no_refusal():
    def function(x, rows):
        return x[rows], x[:, 0], x.index_select(0, rows)

    fast = nimble.compile(function, strict=True).prepare(torch.randn(4, 3), torch.tensor([0, 2]))
    x, rows = torch.randn(4, 3), torch.tensor([3, 1])
    assert_same(replay(fast, x, rows), function(x, rows))


def test_refusals_are_counted():
    fast = nimble.compile(reads_an_item)
    with pytest.warns(nimble.FallbackWarning):
        fast(torch.randn(3))
    fast(torch.randn(3))
    assert fast.stats["refusals"] == 1
    assert fast.stats["eager_calls"] == 1


def test_the_messages_begin_with_the_function_that_raised():
    with pytest.raises(nimble.RecordError, match=r"^\[nimble::\w+\] "):
        nimble.compile(reads_an_item).prepare(torch.randn(3))


def test_errors_have_one_root():
    for error in (nimble.RecordError, nimble.GuardError, nimble.ValidationError):
        assert issubclass(error, nimble.Error)
    assert issubclass(nimble.Error, RuntimeError)


@pytest.mark.parametrize(
    "draw",
    [random.random, numpy.random.rand, lambda: random.choice([1, 2])],
    ids=["python", "numpy", "choice"],
)
def test_random_numbers_of_the_host_are_refused(draw):
    with pytest.raises(nimble.RecordError, match=r"(?s)Python's or numpy's.*draw with torch"):
        nimble.compile(lambda x: x * draw()).prepare(torch.randn(3))


def chooses(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def repeats(x: Tensor) -> Tensor:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]


class ChoosesALayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, *self.layers, (x,))


@pytest.mark.parametrize(
    "function", [chooses, repeats, ChoosesALayer()], ids=["cond", "while_loop", "cond of modules"]
)
def test_a_higher_order_operator_is_refused_by_name(function, made_for_dynamo):
    fast = nimble.compile(function)
    with pytest.warns(
        nimble.FallbackWarning, match="(cond|while_loop) cannot be replayed: it is a higher-order"
    ):
        for x in torch.randn(4, 2, 3):
            assert_same(fast(x), function(x))  # which goes on as if nobody had recorded it
    assert "higher-order operator (" + __file__ in fast.explain()
    with pytest.raises(nimble.RecordError, match="higher-order"):
        nimble.compile(function).prepare(torch.randn(3))
    assert_same(function(x), function(x))


class Marked(torch.Tensor):
    """A tensor whose sums are taken for differences."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return -result if func in (torch.add, torch.Tensor.add, torch.Tensor.__add__) else result


def test_a_tensor_class_of_ones_own_runs_eagerly():
    fast = nimble.compile(lambda x: x + 1)
    x = torch.randn(3)
    warm_up(fast, x)
    marked = x.as_subclass(Marked)
    with pytest.warns(nimble.FallbackWarning, match="Marked"):
        result = fast(marked)
    assert type(result) is Marked
    assert_same(result.as_subclass(torch.Tensor), -(x + 1))
    assert_same(replay(fast, x), x + 1)
    with pytest.raises(nimble.RecordError, match="Marked"):
        nimble.compile(lambda x: x + 1, strict=True)(marked)


def test_a_result_from_outside_that_requires_grad_is_refused():
    base, bias = torch.randn(3, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
    with torch.enable_grad():
        weight = base * 2
        fast = nimble.compile(lambda x: x @ weight + bias)
        with pytest.warns(nimble.FallbackWarning, match="computed outside"):
            for _ in range(4):
                base.grad = None
                x = torch.randn(2, 3)
                fast(x).sum().backward(retain_graph=True)
                assert_same(base.grad, 2 * x.sum(0)[:, None].expand(3, 3).contiguous())
        with pytest.raises(nimble.RecordError, match="Pass it as an argument"):
            nimble.compile(lambda x: x @ weight).prepare(torch.randn(2, 3))


def test_the_warning_points_at_the_users_line():
    fast = nimble.compile(reads_an_item)
    with pytest.warns(nimble.FallbackWarning) as given:
        fast(torch.randn(3))
    assert given[0].filename == __file__
