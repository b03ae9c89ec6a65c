"""`nimble run`: the right answer, honest times, and messages that help."""

from __future__ import annotations

import json

import pytest
import torch
from cli.command import nimble as command
from nimble.cli import main, models

from nimble import packages


def run(*arguments: str) -> int:
    return main(["run", *arguments, "--device", "cpu", "--seconds", "0.05"])


def report_of(capsys) -> dict:
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)  # so there is nothing but JSON


def test_a_model_from_a_file_is_compiled_checked_and_timed(model_file, capsys):
    assert run(f"{model_file}:perceptron", "--json") == 0
    (row,) = report_of(capsys)["rows"]
    assert row["answer"] == "same bits"
    assert row["stats"]["replays"] > 0
    assert row["speedup"] == row["eager"]["median"] / row["nimble"]["median"]
    assert row["eager"]["runs"] == row["nimble"]["runs"] > 0  # they took turns


@pytest.mark.parametrize("function", ["plain_function", "with_example_inputs"])
def test_a_file_may_give_functions_and_modules_with_inputs(model_file, capsys, function):
    assert run(f"{model_file}:{function}", "--json") == 0
    assert report_of(capsys)["rows"][0]["from"] == "file"


def test_several_models_make_one_table_with_their_mean(model_file, capsys):
    assert run(f"{model_file}:perceptron", f"{model_file}:plain_function") == 0
    out = capsys.readouterr().out
    assert "perceptron" in out and "plain_function" in out
    assert "geometric mean" in out


def test_the_number_of_streams_is_a_choice(model_file, capsys):
    assert run(f"{model_file}:perceptron", "--streams", "1", "--json") == 0
    assert report_of(capsys)["rows"][0]["stats"]["streams"] == 1


def test_any_option_of_compile_can_be_given(model_file, capsys):
    assert run(f"{model_file}:perceptron", "--option", "memory=apart", "--option", "tune=0", "--json") == 0
    stats = report_of(capsys)["rows"][0]["stats"]
    assert stats["arena_bytes"] >= stats["allocated_bytes"] > 0


@pytest.fixture
def rounds_otherwise(monkeypatch):
    """What is compiled answers a little beside eager."""

    class Rounding:
        def __init__(self, fast):
            self.fast = fast

        def __getattr__(self, name):
            return getattr(self.fast, name)

        def __call__(self, *args):
            return self.fast(*args) * (1 + 1e-5)

    really_compiled = models.compiled
    monkeypatch.setattr(
        "nimble.cli.run.compiled", lambda module, arguments: Rounding(really_compiled(module, arguments))
    )


def test_an_answer_that_is_almost_eagers_is_none(model_file, capsys, rounds_otherwise):
    assert run(f"{model_file}:perceptron", "--json") == 1
    captured = capsys.readouterr()
    assert "its answer is not eager's: relative error 1e-05" in captured.err
    assert captured.out == ""


def test_rewrites_may_round_otherwise(model_file, capsys, rounds_otherwise):
    assert run(f"{model_file}:perceptron", "--option", "rewrites=default", "--json") == 0
    assert report_of(capsys)["rows"][0]["answer"].startswith("relative error")


def test_what_eager_does_not_repeat_need_not_be_the_same_bits(model_file, capsys):
    assert run(f"{model_file}:never_the_same", "--json") == 0
    assert report_of(capsys)["rows"][0]["answer"].startswith("relative error")


def test_where_no_report_is_asked_for_no_file_is_written(model_file, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert run(f"{model_file}:perceptron", "--json") == 0
    assert report_of(capsys)["rows"][0]["report"] is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "advice"), [("strems=1", "streams"), ("streams=-1", "streams"), ("tune", "NAME=VALUE")]
)
def test_a_wrong_option_is_refused_by_name(model_file, option, advice, capsys):
    assert run(f"{model_file}:perceptron", "--option", option) == 2
    assert advice in capsys.readouterr().err


@pytest.mark.parametrize("twice", [["--streams", "1"], ["--option", "streams=1"]])
def test_an_option_that_is_given_twice_is_refused(twice, model_file, capsys):
    assert run(f"{model_file}:perceptron", *twice, "--option", "streams=2") == 2
    assert "streams is given twice: 1 and 2" in capsys.readouterr().err


def test_a_wrong_rewrite_is_refused_with_the_nearest(model_file, capsys):
    assert run(f"{model_file}:perceptron", "--option", "rewrites=fold_batchnorm") == 2
    assert "did you mean fold_batch_norm" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "report"])
def test_a_batch_size_is_refused_where_a_file_makes_the_inputs(command, model_file, capsys):
    assert main([command, f"{model_file}:perceptron", "--batch", "3", "--device", "cpu"]) == 2
    assert "small_models.py:perceptron, which makes its inputs itself" in capsys.readouterr().err


def test_short_times_are_shown_with_enough_digits(model_file, capsys):
    assert run(f"{model_file}:perceptron") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "perceptron" in line]
    for time in line.split()[1:3]:
        assert len(time.partition(".")[2]) >= 3, line


def test_a_model_whose_inputs_cannot_be_guessed_is_refused_with_advice(capsys):
    pytest.importorskip("transformers")
    assert run("transformers:clip") == 2
    assert "file.py:function" in capsys.readouterr().err


def test_a_model_that_decodes_gets_what_was_decoded_so_far(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(models, "TOKENS", 4)
    model, inputs = models.from_transformers("t5", 2)
    with torch.no_grad():
        assert model.eval()(*inputs)[0].shape[:2] == (2, 4)


def test_weights_come_from_a_file(model_file, tmp_path, capsys):
    weights = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
    ).state_dict()
    torch.save(weights, tmp_path / "right.pt")
    assert run(f"{model_file}:perceptron", "--weights", str(tmp_path / "right.pt"), "--json") == 0
    assert report_of(capsys)["rows"][0]["answer"] == "same bits"


def test_weights_that_do_not_fit_are_refused_by_name(model_file, tmp_path, capsys):
    torch.save({"0.weight": torch.zeros(3)}, tmp_path / "other.pt")
    assert run(f"{model_file}:perceptron", "--weights", str(tmp_path / "other.pt")) == 2
    assert "0.bias" in capsys.readouterr().err


def test_weights_are_really_loaded(tmp_path):
    path = tmp_path / "w.pt"
    torch.save(torch.nn.Linear(3, 3).state_dict(), path)
    module = torch.nn.Linear(3, 3)
    before = module.weight.clone()
    models.load_weights(module, path)
    assert torch.equal(module.weight, torch.load(path)["weight"])
    assert not torch.equal(module.weight, before)


def test_what_cannot_be_replayed_is_refused_with_advice(model_file, capsys):
    assert run(f"{model_file}:reads_a_value") == 3
    error = capsys.readouterr().err
    assert "item" in error
    assert "small_models.py" in error


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("resnet51", "resnet50"),
        ("mobilenetv2", "mobilenet_v2"),
        ("timm:resnet81", "resnet18"),
        ("torchvison:resnet18", "did you mean torchvision"),
        ("ResNet50", "resnet50"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(name, advice, capsys):
    assert run(name) == 2
    captured = capsys.readouterr()
    assert advice in captured.err
    assert captured.out == ""


def test_a_wrong_function_is_answered_with_the_nearest(model_file, capsys):
    assert run(f"{model_file}:perceptrn") == 2
    assert "did you mean perceptron?" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys):
    assert run("nowhere.py:make") == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err


def test_a_function_without_inputs_is_told_what_to_return(model_file, capsys):
    assert run(f"{model_file}:no_inputs") == 2
    assert "must return a model and a tuple of inputs" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_refused(model_file, capsys):
    assert main(["run", f"{model_file}:perceptron", "--device", "tpu"]) == 2
    assert "tpu" in capsys.readouterr().err


def test_a_missing_package_names_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr(packages, "is_installed", lambda name: name != "timm")
    assert run("timm:resnet18") == 2
    assert "pip install timm" in capsys.readouterr().err


def test_a_name_that_a_missing_package_may_have_says_so(monkeypatch, capsys):
    monkeypatch.setattr(models, "is_installed", lambda name: name != "timm")
    assert run("nothing_like_it_at_all") == 2
    assert "pip install timm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("nasnet_a_mobile", "bench"),
        ("squeezenet1_1", "torchvision"),
        ("test_vit", "timm"),
        ("torchvision:resnet50", "torchvision"),
        ("bert", "transformers"),
    ],
)
def test_names_of_all_libraries_are_known(name, library):
    if library != "bench":
        pytest.importorskip(library)
    assert models.find_library(name) == (library, name.rpartition(":")[2])


@pytest.mark.parametrize(
    "name",
    [
        "timm:test_vit",
        pytest.param("mobilenet_v3_small", marks=pytest.mark.full),
        pytest.param("torchvision:squeezenet1_1", marks=pytest.mark.full),
        pytest.param("transformers:distilbert", marks=pytest.mark.full),
    ],
)
def test_models_of_libraries_run(name, capsys):
    pytest.importorskip("timm")
    assert run(name, "--json") == 0
    assert report_of(capsys)["rows"][0]["answer"] == "same bits"


def test_a_model_that_is_too_large_is_refused_before_it_is_made(capsys):
    pytest.importorskip("transformers")
    assert run("transformers:llama") == 2
    assert "billion parameters" in capsys.readouterr().err


def test_from_a_shell_only_json_comes_out(model_file):
    result = command("run", f"{model_file}:perceptron", "--device", "cpu", "--seconds", "0.05", "--json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no progress bars where nobody looks
    assert json.loads(result.stdout)["machine"]["torch"].startswith("2.11")


def test_a_file_without_a_function_is_answered_with_how_to_name_one(model_file, capsys):
    assert run(str(model_file)) == 2
    assert f"{model_file}:make" in capsys.readouterr().err
