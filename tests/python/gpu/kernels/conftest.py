"""What every test of a kernel is given: types and layouts, and the same numbers each time."""

import pytest
import torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMATS = [torch.channels_last, torch.contiguous_format]


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture(params=FORMATS, ids=["channels_last", "contiguous"])
def memory_format(request):
    return request.param
