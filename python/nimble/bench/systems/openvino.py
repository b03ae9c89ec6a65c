"""OpenVINO on the CPU, set for the latency of one request, in the precision of the model."""

import torch
from torch import nn

from nimble.bench.systems.kinds import Inputs, Ready, System
from nimble.bench.systems.torchscript import Plain


def infer(model: nn.Module, inputs: Inputs) -> Ready:
    import openvino

    converted = openvino.convert_model(Plain(model).eval(), example_input=inputs)
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    request = openvino.Core().compile_model(converted, "CPU", settings).create_infer_request()
    feed = [tensor.numpy() for tensor in inputs]
    return Ready(lambda: list(request.infer(feed).values()))


SYSTEMS = [System("openvino", "OpenVINO", infer, own_process=True, devices=("cpu",), packages=("openvino",))]
