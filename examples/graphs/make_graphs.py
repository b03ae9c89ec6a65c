"""Writes the example graphs of this folder: python3 make_graphs.py

Shapes are those of the published networks. Costs are estimates, not measurements: the larger of the time to
compute and the time to move the data on a GPU with 30 TFLOP/s and 2 TB/s, and 1.5 us at least, as for small kernels.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

FLOPS, BYTES_PER_SECOND, SMALLEST_KERNEL_NS = 30e12, 2e12, 1500
ALIGNMENT = 512


@dataclass(frozen=True)
class Tensor:
    """The result of a task (None: an input of the whole graph, whose memory is not planned)."""

    task: str | None
    channels: int
    size: int  # height and width
    batch: int = 1

    @property
    def bytes(self):
        return 4 * self.batch * self.channels * self.size**2


@dataclass
class Graph:
    """Tasks in the order in which a program would run them, and the buffers they fill."""

    tasks: list = field(default_factory=list)
    buffers: dict = field(default_factory=dict)

    def task(self, name, reads, result, flops=0, weight_bytes=0, after=()):
        """One kernel that reads some tensors and writes `result`, a Tensor without a task yet (or None)."""
        moved = sum(t.bytes for t in reads) + (result.bytes if result else 0) + weight_bytes
        cost = max(flops / FLOPS, moved / BYTES_PER_SECOND) * 1e9
        producers = [t.task for t in reads if t.task] + list(after)
        self.tasks.append(
            {
                "name": name,
                "cost_ns": max(round(cost), SMALLEST_KERNEL_NS),
                "after": list(dict.fromkeys(producers)),
            }
        )
        for t in reads:
            if t.task and name not in self.buffers[t.task]["uses"]:
                self.buffers[t.task]["uses"].append(name)
        if result is None:
            return None
        self.buffers[name] = {"name": name, "bytes": result.bytes, "alignment": ALIGNMENT, "uses": [name]}
        return Tensor(name, result.channels, result.size, result.batch)

    def conv(self, name, x, channels, kernel=1, stride=1, groups=1, after=()):
        size = math.ceil(x.size / stride)
        weights = channels * (x.channels // groups) * kernel**2
        result = Tensor(None, channels, size, x.batch)
        return self.task(name, [x], result, 2 * x.batch * weights * size**2, 4 * weights, after)

    def pointwise(self, name, *inputs, after=()):
        x = inputs[0]
        return self.task(name, inputs, Tensor(None, x.channels, x.size, x.batch), after=after)

    def concatenate(self, name, inputs):
        return self.task(name, inputs, Tensor(None, sum(t.channels for t in inputs), inputs[0].size))

    def write(self, path):
        def lines(items):
            return "[\n  " + ",\n  ".join(json.dumps(item) for item in items) + "\n]"

        tasks = [{k: v for k, v in task.items() if v != []} for task in self.tasks]
        text = '{"format": "nimble-graph", "version": 1,\n'
        text += f'"tasks": {lines(tasks)},\n"buffers": {lines(self.buffers.values())}}}\n'
        path.write_text(text)


def diamond():
    """A residual block's fork and join: the smallest graph in which two streams help."""
    g = Graph()
    stem = g.conv("stem", Tensor(None, 3, 224), 64, kernel=7, stride=4)
    left = g.conv("left_3x3", stem, 64, kernel=3)
    right = g.conv("right_1x1", stem, 64)
    g.pointwise("add", left, right)
    return g


def inception_block():
    """GoogLeNet's block 3a: four branches of different length, concatenated."""
    g = Graph()

    def conv(name, x, channels, kernel=1):
        return g.pointwise(f"{name}.relu", g.conv(f"{name}.conv", x, channels, kernel))

    x = g.pointwise("maxpool2", Tensor(None, 192, 28))
    b1 = conv("1x1", x, 64)
    b2 = conv("3x3", conv("3x3_reduce", x, 96), 128, 3)
    b3 = conv("5x5", conv("5x5_reduce", x, 16), 32, 5)
    b4 = conv("pool_proj", g.pointwise("pool", x), 32)
    g.concatenate("concat", [b1, b2, b3, b4])
    return g


def nasnet_cell():
    """A normal cell of NASNet-A (mobile) at 28 x 28: five combinations of separable convolutions and pools."""
    g = Graph()
    channels = 44

    def adjust(name, x):
        y = g.conv(f"{name}.conv", g.pointwise(f"{name}.relu", x), channels)
        return g.pointwise(f"{name}.bn", y)

    def separable(name, x, kernel):
        for half in "ab":
            y = g.pointwise(f"{name}.relu_{half}", x)
            y = g.conv(f"{name}.depthwise_{half}", y, channels, kernel, groups=channels)
            x = g.pointwise(f"{name}.bn_{half}", g.conv(f"{name}.pointwise_{half}", y, channels))
        return x

    left = adjust("previous", Tensor(None, 4 * channels, 28))
    right = adjust("current", Tensor(None, 6 * channels, 28))
    sums = [
        g.pointwise("0.add", separable("0.left_5x5", right, 5), separable("0.right_3x3", left, 3)),
        g.pointwise("1.add", separable("1.left_5x5", left, 5), separable("1.right_3x3", left, 3)),
        g.pointwise("2.add", g.pointwise("2.left_pool", right), left),
        g.pointwise("3.add", g.pointwise("3.left_pool", left), g.pointwise("3.right_pool", left)),
        g.pointwise("4.add", separable("4.left_3x3", right, 3), right),
    ]
    g.concatenate("concat", [left, *sums])
    return g


def training_step(batch=32):
    """Forward, backward and SGD of a small residual network: weight gradients and updates leave the critical path."""
    g = Graph()
    backward = []  # what to run on the way back, last layer first

    def layer(name, x, channels, stride=1, kernel=3, relu=True):
        """Convolution, batch norm, ReLU; notes how their gradients flow."""
        conv = g.conv(f"{name}.conv", x, channels, kernel, stride)
        y = norm = g.pointwise(f"{name}.bn", conv)
        if relu:
            y = g.pointwise(f"{name}.relu", norm)

        def back(gradient):
            if relu:
                gradient = g.pointwise(f"{name}.relu_grad", gradient, y)
            gradient = g.pointwise(f"{name}.bn_grad", gradient, conv)
            weights = channels * x.channels * kernel**2
            flops = 2 * batch * weights * conv.size**2
            needed = []
            if x.task:  # the graph's input needs no gradient
                result = Tensor(None, x.channels, x.size, batch)
                dx = g.task(f"{name}.grad_input", [gradient], result, flops, 4 * weights)
                needed = [dx.task]
            dw = g.task(f"{name}.grad_weight", [gradient, x], Tensor(None, weights, 1), flops)
            # The update overwrites the weights, so it comes after their last reader.
            g.task(f"{name}.sgd", [dw], None, weight_bytes=8 * weights, after=needed)
            return dx if x.task else None

        return y, back

    def block(name, x, channels, stride):
        a, back_a = layer(f"{name}.1", x, channels, stride)
        b, back_b = layer(f"{name}.2", a, channels, relu=False)
        short, back_short = layer(f"{name}.short", x, channels, stride, kernel=1, relu=False)
        y = g.pointwise(f"{name}.relu", g.pointwise(f"{name}.add", b, short))

        def back(gradient):
            gradient = g.pointwise(f"{name}.relu_grad", gradient, y)
            return g.pointwise(f"{name}.add_grad", back_a(back_b(gradient)), back_short(gradient))

        return y, back

    x = Tensor(None, 3, 64, batch)
    x, back = layer("stem", x, 64, stride=2)
    backward.append(back)
    for i, (channels, stride) in enumerate([(64, 1), (128, 2), (256, 2), (512, 2)]):
        x, back = block(f"block{i + 1}", x, channels, stride)
        backward.append(back)
    pooled = g.task("pool", [x], Tensor(None, x.channels, 1, batch))
    logits = g.task("fc", [pooled], Tensor(None, 100, 1, batch), 2 * batch * 512 * 100, 4 * 512 * 100)
    loss = g.pointwise("loss", logits)
    gradient = g.pointwise("loss_grad", loss, logits)
    dw = g.task("fc.grad_weight", [gradient, pooled], Tensor(None, 51200, 1), 2 * batch * 512 * 100)
    dpool = g.task("fc.grad_input", [gradient], Tensor(None, 512, 1, batch), 2 * batch * 512 * 100, 4 * 51200)
    g.task("fc.sgd", [dw], None, weight_bytes=8 * 51200, after=[dpool.task])
    gradient = g.task("pool_grad", [dpool], Tensor(None, x.channels, x.size, batch))
    for back in reversed(backward):
        gradient = back(gradient)
    return g


if __name__ == "__main__":
    folder = Path(__file__).parent
    for make in (diamond, inception_block, nasnet_cell, training_step):
        make().write(folder / f"{make.__name__}.json")
