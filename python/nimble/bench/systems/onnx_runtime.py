"""ONNX Runtime on the CPU, from the exporter that needs no further package. Inputs and results are numpy's, as its
Python interface has them."""

import io
import warnings

import torch
from torch import nn

from nimble.bench.systems.kinds import Inputs, Ready, System
from nimble.bench.systems.torchscript import Plain


def infer(model: nn.Module, inputs: Inputs) -> Ready:
    import onnxruntime

    file = io.BytesIO()
    names = [f"input{number}" for number in range(len(inputs))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a newer exporter, and what a trace cannot see
        torch.onnx.export(Plain(model).eval(), inputs, file, input_names=names, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    return Ready(lambda: session.run(None, feed))


SYSTEMS = [
    System(
        "onnxruntime",
        "ONNX Runtime",
        infer,
        own_process=True,
        devices=("cpu",),
        packages=("onnx", "onnxruntime"),
    )
]
