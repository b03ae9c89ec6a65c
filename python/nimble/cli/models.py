"""Models by name: of the suite, torchvision, timm or transformers, or made by a function in a file. Nothing is
downloaded: weights are random, or come from a file."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import nimble
from nimble.bench.arguments import positive
from nimble.bench.job import DTYPES
from nimble.bench.workloads import WORKLOADS, Inference
from nimble.bench.workloads.random_weights import enliven
from nimble.cli.users_code import add_traceback_argument, users_code
from nimble.exit_codes import WrongInput
from nimble.nearest import UnknownName, find
from nimble.packages import is_installed, need
from nimble.settings import compile_options

MOST_PARAMETERS = 3_000_000_000  # some default configurations of transformers have far more
TOKENS = 128

Inputs = tuple[Tensor | None, ...]


@dataclass
class Model:
    name: str
    library: str
    module: Callable[..., Any]
    inputs: Inputs
    device: torch.device


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="a state_dict saved by torch.save (random weights)"
    )
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="batch size (1)")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="precision (fp32)")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (a GPU where there is one)")
    add_traceback_argument(parser)


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", metavar="N", help="how many streams: a number, max, or auto (measured)")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of nimble.compile, as tune=0 or memory=apart; may be given again",
    )


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Of nimble.compile, as the command line gives them; whatever falls back to eager raises."""
    options = {"streams": arguments.streams} if arguments.streams else {}
    for given in arguments.option:
        name, separator, value = given.partition("=")
        if not separator:
            raise WrongInput(f"--option takes NAME=VALUE, not {given!r}")
        if name in options:
            raise WrongInput(f"{name} is given twice: {options[name]} and {value}")
        options[name] = value
    return {"strict": True} | options


def check_options(arguments: argparse.Namespace) -> None:
    """WrongInput for options that nimble.compile does not know or take."""
    try:
        compile_options(**options_of(arguments))
    except (TypeError, ValueError) as error:
        raise WrongInput(str(error)) from None


def compiled(module: Callable[..., Any], arguments: argparse.Namespace) -> Callable[..., Any]:
    try:
        return nimble.compile(module, **options_of(arguments))
    except (TypeError, ValueError) as error:
        raise WrongInput(str(error)) from None


def keeps_eagers_bits(arguments: argparse.Namespace) -> bool:
    """Only rewrites may round otherwise."""
    return compile_options(**options_of(arguments)).rewrites in ([], ["none"])


# Of each library: its names, and how a model of that name and its inputs are made.


def suite_names() -> list[str]:
    return [name for name, workload in WORKLOADS.items() if isinstance(workload, Inference)]


def from_suite(name: str, batch: int) -> tuple[nn.Module, Inputs]:
    return WORKLOADS[name].make(batch)


def torchvision_names() -> list[str]:
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)


def from_torchvision(name: str, batch: int) -> tuple[nn.Module, Inputs]:
    import torchvision

    # Both draw truncated normals and have further outputs for training.
    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    transforms = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    size = transforms.crop_size[0]
    return torchvision.models.get_model(name, weights=None, **options), (torch.randn(batch, 3, size, size),)


def timm_names() -> list[str]:
    import timm

    return timm.list_models()


def from_timm(name: str, batch: int) -> tuple[nn.Module, Inputs]:
    import timm

    model = timm.create_model(name, pretrained=False)
    return model, (torch.randn(batch, *model.default_cfg["input_size"]),)


def transformers_names() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return list(MODEL_MAPPING_NAMES)


def from_transformers(name: str, batch: int) -> tuple[nn.Module, Inputs]:
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(name)
    config.use_cache = False  # a cache for the next token would be one more result, and grow
    with torch.device("meta"):
        outline = AutoModel.from_config(config)
    parameters = sum(p.numel() for p in outline.parameters())
    if parameters > MOST_PARAMETERS:
        raise WrongInput(
            f"{name} has {parameters / 1e9:.0f} billion parameters by default: make a smaller one in a function of "
            f"your own, and name it as file.py:function"
        )
    wanted = outline.main_input_name
    if wanted == "input_ids" and hasattr(config, "vocab_size"):
        tokens = torch.randint(config.vocab_size, (batch, TOKENS))
        # Encoder, mask, decoder: some make what the decoder reads themselves, but not all.
        decodes = list(inspect.signature(outline.forward).parameters)[2:3] == ["decoder_input_ids"]
        return AutoModel.from_config(config), (tokens, None, tokens) if decodes else (tokens,)
    if wanted == "pixel_values" and isinstance(size := getattr(config, "image_size", None), int):
        pictures = torch.randn(batch, getattr(config, "num_channels", 3), size, size)
        return AutoModel.from_config(config), (pictures,)
    raise WrongInput(
        f"the inputs of {name}, {wanted} first, cannot be guessed: make the model and its inputs in a function of "
        "your own, and name it as file.py:function"
    )


LIBRARIES: dict[str, tuple[Callable[[], list[str]], Callable[[str, int], tuple[nn.Module, Inputs]]]] = {
    "bench": (suite_names, from_suite),
    "torchvision": (torchvision_names, from_torchvision),
    "timm": (timm_names, from_timm),
    "transformers": (transformers_names, from_transformers),
}


def load(name: str, arguments: argparse.Namespace, device: torch.device) -> Model:
    """The model in eval mode on its device, with inputs. WrongInput or MissingPackage where that cannot be."""
    file, short = parse_name(name)
    library, short = ("file", short) if file else find_library(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if file:
            module, inputs = from_file(file, short, arguments.traceback)
        else:
            with users_code(f"making {name}", arguments.traceback):
                module, inputs = LIBRARIES[library][1](short, arguments.batch)
                module.eval()
                if library != "bench" and not arguments.weights:
                    enliven(module, *inputs)
    if arguments.weights:
        load_weights(module, arguments.weights)
    with users_code(f"moving {name} to {device} in {arguments.dtype}", arguments.traceback):
        return on_device(Model(short_name(name), library, module, inputs, device), DTYPES[arguments.dtype])


def parse_name(name: str) -> tuple[Path | None, str]:
    """A file that is there and its function; of every other name no file and all of it. WrongInput where there is no
    such file."""
    path, separator, function = name.rpartition(":")
    if not separator and name.endswith(".py"):
        raise WrongInput(f"a file needs a function that makes the model: {name}:make")
    if not path.endswith(".py"):
        return None, name
    if not Path(path).exists():
        raise WrongInput(f"there is no file {path}")
    return Path(path), function


def short_name(name: str) -> str:
    """Without the folder that a file lies in."""
    file, function = parse_name(name)
    return f"{file.name}:{function}" if file else name


def check_model(name: str, arguments: argparse.Namespace) -> None:
    """WrongInput where there is no such file or model, MissingPackage where its library is missing."""
    file, model = parse_name(name)
    if not file:
        find_library(model)
    elif arguments.batch > 1:
        raise WrongInput(f"--batch says nothing to {name}, which makes its inputs itself")


def find_library(name: str) -> tuple[str, str]:
    """Which library has a model of this name. A prefix, as in timm:resnet50, leaves no doubt."""
    library, separator, short = name.rpartition(":")
    if separator:
        find(library, LIBRARIES, "library of models")
        if library != "bench":
            need(library, f"for {name}")
        return library, find(short, LIBRARIES[library][0](), f"model of {library}")
    known: list[str] = []
    missing = []
    for library, (names, _) in LIBRARIES.items():
        if library != "bench" and not is_installed(library):
            missing.append(library)
            continue
        if name in (found := names()):
            return library, name
        known += found
    try:
        find(name, known, "model")
    except UnknownName as error:
        if not missing:
            raise
        hint = (
            "; not installed, and so not looked into: "
            + ", ".join(missing)
            + f" (pip install {' '.join(missing)})"
        )
        raise UnknownName(str(error) + hint) from None
    raise AssertionError("a name that is known was not found")


def from_file(path: Path, function: str, traceback: bool = False) -> tuple[Callable[..., Any], Inputs]:
    """Calls a function of a file: it returns a callable and its inputs, or a module that has `example_inputs`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    sys.path.insert(0, str(path.parent.resolve()))
    with users_code(f"importing {path}", traceback):
        spec.loader.exec_module(loaded)
    functions = [name for name, value in vars(loaded).items() if callable(value) and not name.startswith("_")]
    make = getattr(loaded, find(function, functions, f"function in {path}"))
    with users_code(f"calling {function}() of {path}", traceback):
        made = make()
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        module, inputs = made
    elif callable(made) and hasattr(made, "example_inputs"):
        module, inputs = made, made.example_inputs
    else:
        raise WrongInput(
            f"{path}:{function} must return a model and a tuple of inputs, or a model with an attribute "
            f"example_inputs, not {type(made).__name__}"
        )
    return module, inputs if isinstance(inputs, tuple) else (inputs,)


def load_weights(module: Callable[..., Any], path: Path) -> None:
    if not isinstance(module, nn.Module):
        raise WrongInput("--weights needs a module to load them into")
    if not path.exists():
        raise WrongInput(f"there is no file {path}")
    try:
        weights = torch.load(path, weights_only=True, map_location="cpu")
    except OSError:
        raise
    except Exception as error:  # of any kind, from the unpickler
        reason = f"{type(error).__name__} {' '.join(str(error).split())[:200]}".strip()
        raise WrongInput(f"{path} holds no state_dict saved by torch.save: {reason}") from None
    if not isinstance(weights, Mapping):
        raise WrongInput(f"{path} holds no state_dict but a {type(weights).__name__}")
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise WrongInput(f"{path} does not fit: {' '.join(str(error).split())[:600]}") from None


def on_device(model: Model, dtype: torch.dtype) -> Model:
    if isinstance(model.module, nn.Module):
        model.module = model.module.eval().to(model.device, dtype)

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(model.device, dtype) if value.is_floating_point() else value.to(model.device)

    model.inputs = tree_map(moved, model.inputs)
    return model
