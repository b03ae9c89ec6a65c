"""The models that the benchmarks measure are what they claim to be."""

from __future__ import annotations

import math

import pytest
import torch
from nimble.bench.workloads import GROUPS, WORKLOADS, Inference, Program, Training, chosen, make, nasnet
from nimble.nearest import UnknownName
from support import assert_same
from torch.utils._pytree import tree_leaves

NETWORKS = [name for name, workload in WORKLOADS.items() if isinstance(workload, Inference)]
TRAINED = [name for name, workload in WORKLOADS.items() if isinstance(workload, Training)]
# These take seconds to make; the smaller members of their families stay.
LARGE = {"resnet101", "efficientnet_b5", "nasnet_a_large", "bert_base", "vit_b_16"}


def count_parameters(build) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


def test_nasnet_a_mobile_has_the_published_parameter_count():
    assert count_parameters(nasnet.nasnet_a_mobile) == 5_289_978


def test_nasnet_a_large_has_the_published_parameter_count():
    assert count_parameters(nasnet.nasnet_a_large) == 88_753_150


def test_nasnet_a_large_counts_as_timms_does():
    timm = pytest.importorskip("timm")
    theirs = count_parameters(lambda: timm.create_model("nasnetalarge"))
    assert count_parameters(nasnet.nasnet_a_large) == theirs


def test_nasnet_a_has_the_cells_that_its_name_says():
    with torch.device("meta"):
        model = nasnet.nasnet_a_mobile()
    assert [len(stack) for stack in model.stacks] == [4, 4, 4]
    assert model.classifier.in_features == 1056


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (nasnet.nasnet_a_mobile, 224),
        (nasnet.nasnet_a_large, 331),
        (nasnet.nasnet_a_mobile, 64),
    ],
)
def test_nasnet_a_takes_pictures_of_its_size(build, size):
    with torch.device("meta"):
        assert build().eval()(torch.empty(2, 3, size, size)).shape == (2, 1000)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in LARGE else name for name in NETWORKS]
)
@torch.no_grad()
def test_answers_in_eval_mode_are_finite_depend_on_the_input_and_come_from_a_fixed_seed(name):
    model, inputs = make(name)
    assert not any(module.training for module in model.modules())

    other = [torch.randn_like(x) if x.is_floating_point() else x.flip(1) for x in inputs]
    answers, others = tree_leaves(model(*inputs)), tree_leaves(model(*other))
    assert all(answer.isfinite().all() for answer in answers)
    assert not any(torch.allclose(a, b) for a, b in zip(answers, others, strict=True))

    again, inputs_again = make(name)
    assert all(torch.equal(a, b) for a, b in zip(inputs, inputs_again, strict=True))
    # Statistics of calibrated batch norms depend on the number of threads; what is drawn does not.
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_making_a_model_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    make("mobilenet_v3_small")
    assert torch.equal(before, torch.get_rng_state())


def test_batch_sizes_are_free():
    _, (pictures,) = make("mobilenet_v3_small", batch=3)
    assert pictures.shape == (3, 3, 224, 224)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match=r"did you mean .*resnet50"):
        make("resnet5000")


def test_groups_hold_workloads_that_exist_and_overlap_without_repeats():
    assert all(name in WORKLOADS for members in GROUPS.values() for name in members)
    names = [workload.name for workload in chosen(["paper", "googlenet", "inference"])]
    assert len(names) == len(set(names))
    assert set(names) == set(GROUPS["inference"])
    assert len(GROUPS["paper"]) == 8


def test_a_training_program_is_the_same_every_time():
    def train():
        program = Program(WORKLOADS["training/mobilenet_v2"], 3, "cpu")
        losses = [program.step(*program.batches[number]) for number in range(2)]
        return program.batches, losses, dict(program.model.state_dict())

    assert_same(train(), train())


def test_half_precision_trains_under_autocast():
    program = Program(WORKLOADS["training/small_perceptron"], 3, "cpu", torch.bfloat16)
    x, y = program.batches[0]
    assert program.loss(x, y).dtype == torch.float32
    exact = Program(WORKLOADS["training/small_perceptron"], 3, "cpu").loss(x, y)
    assert program.loss(x, y) != exact
    assert torch.isclose(program.loss(x, y), exact, rtol=0.05)


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINED)
def test_every_program_trains(name):
    program = Program(WORKLOADS[name], 4, "cpu")
    losses = [program.step(*batch).item() for batch in program.batches[:4]]
    assert all(map(math.isfinite, losses))
    assert len(set(losses)) == len(losses)
