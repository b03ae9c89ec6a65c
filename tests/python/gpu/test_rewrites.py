"""Rewrites on the GPU: the networks of the benchmark, against float64, with every rewrite and with each alone."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from nimble.bench.workloads import make
from rewrites.attention import Attention
from support import replay

import nimble

pytestmark = pytest.mark.gpu

NETWORKS = ["resnet50", "inception_v3", "googlenet", "nasnet_a_mobile", "mobilenet_v2"]
REWRITES = [
    "unread_work",
    "norm_through_cat",
    "fold_batch_norm",
    "relu_through_cat",
    "fold_padding",
    "channels_last",
    "fuse_convolution",
    "separable_convolution",
    "pooling",
    "scale_batch_norm",
    "open_attention",
    "merge_linears",
    "matrix_linear",
    "linear_activation",
    "fuse_rows",
    "unneeded_copies",
    "fuse_pointwise",
    "group_convolutions",
    "sum_of_products",
    "cat_by_address",
]


def on_gpu(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, torch.Tensor]:
    model, (x,) = make(name)
    return model.cuda().to(dtype), x.cuda().to(dtype)


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return ((result.double() - exact).abs().max() / exact.abs().max()).item()


def assert_no_worse_than_eager(model: torch.nn.Module, fast, x: torch.Tensor) -> None:
    """On an input that nothing was recorded with: our error is at most twice eager's own."""
    result, eager = replay(fast, x), model(x)
    exact = copy.deepcopy(model).double()(x.double())
    assert error(result, exact) <= max(2 * error(eager, exact), 4 * torch.finfo(x.dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_rewrite_together(name, dtype):
    model, x = on_gpu(name, dtype)
    fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
    plain = nimble.compile(model, strict=True, rewrites="none").prepare(x)
    assert fast.stats["tasks"] < 0.75 * plain.stats["tasks"], fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


def concatenations(fast) -> int:
    [part] = fast._nimble._document((), {}, eager=False)["parts"]
    return sum(task["name"].startswith("cat#") for task in part["tasks"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["inception_v3", "googlenet", "nasnet_a_mobile"])
def test_concatenations_run_nothing_where_their_parts_are_written_in_place(name, dtype):
    model, x = on_gpu(name, dtype)
    fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
    plain = nimble.compile(model, strict=True, rewrites="none").prepare(x)
    # How many depends on which kernels are fastest: cuDNN's cannot write into a part of something.
    assert concatenations(fast) < concatenations(plain), fast.explain()
    assert "parts written in place" in fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("name", ["googlenet", "nasnet_a_mobile", "mobilenet_v2"])
def test_each_rewrite_alone(name, rewrite):
    model, x = on_gpu(name, torch.float32)
    fast = nimble.compile(model, strict=True, rewrites=[rewrite], tune=0).prepare(x)
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


class NormsFirst(torch.nn.Module):
    """Residual blocks that normalise before they convolve, as ResNetV2's do."""

    def __init__(self, channels: int, blocks: int):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(channels) for _ in range(blocks))
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(channels, channels, 3, padding=1) for _ in range(blocks)
        )
        for norm in self.norms:
            torch.nn.init.normal_(norm.bias)
            torch.nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x).relu())
        return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_norms_that_come_first_fuse_with_their_activation(dtype, repeatable_kernels):
    blocks = 4
    model = NormsFirst(32, blocks).eval().cuda().to(dtype)
    x = torch.randn(2, 3, 24, 24, device="cuda", dtype=dtype)
    names = ["scale_batch_norm", "fuse_pointwise"]
    fast = nimble.compile(model, strict=True, rewrites=names, tune=0).prepare(x)
    assert f"scale_batch_norm: {blocks} times" in fast.explain(), fast.explain()
    [part] = fast._nimble._document((), {}, eager=False)["parts"]
    operators = [task["operator"].split(".")[0] for task in part["tasks"]]
    assert operators.count("nimble::pointwise") >= blocks
    assert not {"aten::addcmul", "aten::cudnn_batch_norm", "aten::native_batch_norm"} & set(operators)
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


class EncoderLayer(torch.nn.Module):
    """A transformer's, norms first or behind the sums, with attention of PyTorch's own or written out."""

    def __init__(self, width: int, norm_first: bool, written_out: bool):
        super().__init__()
        self.norm_first, self.written_out = norm_first, written_out
        self.projection, self.result = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.projection(x).view(batch, length, 3, -1, 64).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        if self.written_out:
            mixed = (query @ key.transpose(-2, -1) / 8).softmax(-1) @ value
        else:
            mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return self.result(mixed.transpose(1, 2).reshape(batch, length, width))

    def dense(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(torch.nn.functional.gelu(self.wide(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.dense(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.dense(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("written_out", [False, True], ids=["attention", "softmax"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["norms_behind", "norms_first"])
def test_layer_norms_and_softmaxes_take_in_what_is_around_them(norm_first, written_out, dtype):
    layers = 3
    model = torch.nn.Sequential(*(EncoderLayer(256, norm_first, written_out) for _ in range(layers)))
    model = model.eval().cuda().to(dtype)
    x = torch.randn(2, 50, 256, device="cuda", dtype=dtype)
    fast = nimble.compile(model, strict=True, rewrites=["fuse_rows"], tune=0).prepare(x)
    plain = nimble.compile(model, strict=True, rewrites="none").prepare(x)
    # Each sum with a norm behind it is one task less, and each softmax with its scale.
    saved = (2 * layers - 1 if norm_first else 2 * layers) + (layers if written_out else 0)
    assert plain.stats["tasks"] - fast.stats["tasks"] == saved, fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


class AttentionOfPyTorchs(torch.nn.Module):
    """As a network in evaluation calls it: one operator."""

    def __init__(self, width: int):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.narrow(torch.nn.functional.gelu(self.wide(x)))


@pytest.mark.parametrize("words", [1, 50, 197])
def test_linear_layers_also_in_attention_are_products_by_tensor_cores(words):
    layers = 3
    model = torch.nn.Sequential(*(AttentionOfPyTorchs(256) for _ in range(layers))).eval().cuda()
    x = torch.randn(2, words, 256, device="cuda")
    with torch.no_grad():
        fast = nimble.compile(
            model, strict=True, rewrites=["open_attention", "matrix_linear"], tune=0
        ).prepare(x)
        assert f"open_attention: {layers} times" in fast.explain()
        assert f"matrix_linear: {4 * layers} times" in fast.explain()
        fresh = torch.randn_like(x)
        result, eager = replay(fast, fresh), model(fresh)
        exact = model.double()(fresh.double())
    # Neither rounds to TF32.
    assert error(result, exact) <= max(2 * error(eager, exact), 2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_rewrite_of_a_transformer(dtype):
    model, x = on_gpu("vit_b_16", dtype)
    fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
    plain = nimble.compile(model, strict=True, rewrites="none").prepare(x)
    assert fast.stats["tasks"] < plain.stats["tasks"], fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


def test_without_measuring_the_usual_choice_is_right_too():
    model, x = on_gpu("resnet50", torch.float32)
    fast = nimble.compile(model, strict=True, rewrites="default", tune=0).prepare(x)
    assert "cudnn_convolution" in fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "least"), [("mobilenet_v2", 10), ("nasnet_a_mobile", 0)])
def test_depthwise_convolutions_become_part_of_those_behind_them_in_a_chain(name, least, dtype):
    model, x = on_gpu(name, dtype)
    rewrites = ["fold_batch_norm", "relu_through_cat", "channels_last", "fuse_convolution"]
    apart = nimble.compile(model, strict=True, rewrites=rewrites, tune=0).prepare(x)
    fast = nimble.compile(model, strict=True, rewrites=[*rewrites, "separable_convolution"], tune=0).prepare(
        x
    )
    fewer = apart.stats["tasks"] - fast.stats["tasks"]
    assert fewer >= least and (least or fewer == 0), fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_query_key_and_value_are_one_product(dtype):
    model = torch.nn.Sequential(*(Attention(256, 4) for _ in range(3))).eval().cuda().to(dtype)
    x = torch.randn(2, 64, 256, device="cuda", dtype=dtype)
    with torch.no_grad():
        plain = nimble.compile(model, strict=True).prepare(x)
        fast = nimble.compile(model, strict=True, rewrites=["merge_linears"], tune=0).prepare(x)
        assert fast.stats["tasks"] == plain.stats["tasks"] - 6, fast.explain()
        assert_no_worse_than_eager(model, fast, torch.randn_like(x))


@pytest.mark.parametrize("name", ["nasnet_a_mobile", "mobilenet_v2"])
def test_replays_do_not_differ_by_a_bit(name):
    """On many streams, with kernels that begin before those they depend on have ended."""
    model, x = on_gpu(name, torch.float16)
    fast = nimble.compile(model, strict=True, rewrites="default", streams="max").prepare(x)
    inputs = [torch.randn_like(x) for _ in range(4)]
    expected = []
    for value in inputs:
        expected.append(fast(value))
        torch.cuda.synchronize()
    for _ in range(50):
        for value, wanted in zip(inputs, expected, strict=True):
            assert torch.equal(fast(value), wanted)


def test_without_tf32_no_product_is_made_with_it():
    model, x = on_gpu("mobilenet_v2", torch.float32)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
        assert "matrix_convolution" not in fast.explain()


class KeepsPrecision(torch.nn.Module):
    """One of each kind of convolution. Eager does them without TF32, although it is allowed where this is called."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 64, 3, 2, 1)
        self.one = torch.nn.Conv2d(64, 64, 1)
        self.three = torch.nn.Conv2d(64, 64, 3, 1, 1)
        self.grouped = torch.nn.Conv2d(64, 64, 3, 1, 1, groups=4)
        self.depthwise = torch.nn.Conv2d(64, 64, 3, 1, 1, groups=64)
        self.last = torch.nn.Conv2d(64, 32, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            x = self.stem(x).relu()
            x = (self.three(torch.nn.functional.silu(self.one(x))) + x).relu()
            return self.last(self.depthwise(self.grouped(x)).relu())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_what_eager_computes_without_tf32_is_rewritten_without_it(memory_format):
    model = KeepsPrecision().cuda().eval()
    x = torch.randn(2, 3, 64, 64, device="cuda").to(memory_format=memory_format)
    fast = nimble.compile(model, strict=True, rewrites="default", tolerance=2e-5, tune=0).prepare(x)
    explained = fast.explain()
    assert re.search(r"once more without TF32: result 0 differs from eager's", explained), explained
    assert "dropped" not in explained
    document = fast._nimble._document((), {})
    [part] = document["parts"]
    operators = {task["operator"] for task in part["tasks"]}
    assert {"nimble::matrix_convolution", "aten::_convolution"} <= operators
    assert not operators & {
        "aten::convolution",
        "aten::cudnn_convolution_relu",
        "aten::cudnn_convolution_add_relu",
        "nimble::pointwise_convolution",
        "nimble::fused_convolution",
    }
    [signature] = document["signatures"]
    assert any("without TF32" in note["how"] for note in signature["notes"])
    x = torch.randn_like(x)
    result = replay(fast, x)
    assert error(result, model.double()(x.double())) < 2e-5


def test_rewrites_of_efficientnet_stay_where_eager_searches_for_its_kernels():
    """The search finds kernels that do not use TF32."""
    model, x = on_gpu("efficientnet_b0", torch.float32)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
        plain = nimble.compile(model, strict=True, rewrites="none").prepare(x)
        assert fast.stats["tasks"] < 0.75 * plain.stats["tasks"], fast.explain()
        assert_no_worse_than_eager(model, fast, torch.randn_like(x))


def test_weights_changed_in_place_are_folded_and_packed_again():
    model, x = on_gpu("mobilenet_v2", torch.float32)
    fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
    for parameter in model.parameters():
        parameter.mul_(1.01)
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


class Branches(torch.nn.Module):
    """A block of an Inception network."""

    def __init__(self, channels: int):
        super().__init__()

        def convolution(wide_in: int, wide_out: int, size: int) -> torch.nn.Module:
            layers = torch.nn.Conv2d(wide_in, wide_out, size, padding=size // 2, bias=False)
            return torch.nn.Sequential(layers, torch.nn.BatchNorm2d(wide_out), torch.nn.ReLU())

        self.branches = torch.nn.ModuleList(
            [
                convolution(channels, 64, 1),
                torch.nn.Sequential(convolution(channels, 48, 1), convolution(48, 64, 3)),
                torch.nn.Sequential(
                    convolution(channels, 64, 1), convolution(64, 96, 3), convolution(96, 96, 3)
                ),
                torch.nn.Sequential(torch.nn.AvgPool2d(3, 1, 1), convolution(channels, 32, 1)),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def kernels_tried(fast) -> list[dict]:
    """What the report says, which is what explain() says."""
    explained = fast.explain()
    told = re.search(r"^  kernels +inside the schedule: (\d+) exchanges? tried, (\d+) kept", explained, re.M)
    assert told, explained
    [part] = fast._nimble._document((), {}, eager=False)["parts"]
    assert int(told[1]) == len(part["kernels"]), explained
    assert int(told[2]) == sum(one["kept"] for one in part["kernels"]), explained
    assert explained.count(" by kernel ") == int(told[2]), explained
    return part["kernels"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_kernels_are_chosen_inside_the_schedule(dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("NIMBLE_CACHE_DIR", str(tmp_path / "cache"))
    model, x = on_gpu("googlenet", dtype)
    fast = nimble.compile(model, strict=True, rewrites="default", streams=4).prepare(x)
    assert kernels_tried(fast), fast.explain()
    assert "dropped" not in fast.explain()
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))
    for parameter in model.parameters():
        parameter.mul_(1.01)
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))


def test_kernels_that_were_tried_before_are_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NIMBLE_CACHE_DIR", str(tmp_path / "cache"))
    model = Branches(192).eval().cuda()
    x = torch.randn(1, 192, 35, 35, device="cuda")
    # On one stream the whole waits for every task, so that both times the same kinds are tried.
    first, second = (
        nimble.compile(model, strict=True, rewrites="default", streams=1).prepare(x) for _ in range(2)
    )

    def tried(fast) -> set[tuple]:
        return {
            (one["like"], one["from"], one["to"], round(one["milliseconds_after"], 6))
            for one in kernels_tried(fast)
        }

    assert tried(first), first.explain()
    assert tried(first) <= tried(second), first.explain() + second.explain()


def test_without_measuring_no_other_kernels_are_tried():
    model, x = on_gpu("googlenet", torch.float32)
    fast = nimble.compile(model, strict=True, rewrites="default", tune=0).prepare(x)
    assert "inside the schedule" not in fast.explain()


def test_a_batch_of_several_images():
    model, x = on_gpu("googlenet", torch.float32)
    x = x.expand(3, -1, -1, -1).contiguous()
    fast = nimble.compile(model, strict=True, rewrites="default").prepare(x)
    assert_no_worse_than_eager(model, fast, torch.randn_like(x))
