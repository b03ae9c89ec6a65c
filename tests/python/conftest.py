import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for test in gpu_tests:
            # `make test` counts the skipped GPU tests by these words.
            test.add_marker(pytest.mark.skip(reason="no CUDA device"))
