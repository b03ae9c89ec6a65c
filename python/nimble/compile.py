"""`nimble.compile`: a callable that records itself on first use and is replayed by the engine from then on."""

import contextlib
import copy
import functools
import gc
import inspect
import os
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._autograd import _top_saved_tensors_default_hooks
from torch._C._functorch import maybe_current_level
from torch.autograd import forward_ad

from nimble import _C, messages
from nimble.arguments import Arguments, OwnTensorClass, Structure, class_of_its_own, take_apart
from nimble.hooks import refuse_backward_hooks
from nimble.optimizers import Optimizers, StatesBefore, Step
from nimble.places import (
    ModuleNames,
    Places,
    find_kept,
    modules_reached_by,
    outside_tensors,
    tensors_named_by,
    tensors_read_by,
)
from nimble.recording import record
from nimble.report.document import measured_document
from nimble.report.last_call import LastCall
from nimble.report.page import write_page
from nimble.report.terminal import Explanation
from nimble.report.trace import write_trace
from nimble.settings import compile_options


class _Call:
    """One call of the user's function, as the engine may ask for it: eagerly, or recorded."""

    def __init__(
        self,
        function: Callable,
        args: tuple,
        kwargs: dict,
        static: list[torch.Tensor],
        optimizers: Optimizers,
        undo: StatesBefore | None = None,
    ):
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.static = static
        self.optimizers = optimizers
        self.undo = undo
        self.went_backward = False
        self.steps: list[Step] = []
        self.modules: list[torch.nn.Module] = modules_reached_by(function)
        self.escapes: list[tuple[dict, str, torch.Tensor]] = []
        self.result: Any = None
        self.structure: Structure | None = None

    def run(self, before_pause: Callable | None = None, after_pause: Callable | None = None):
        watched = contextlib.nullcontext()
        if before_pause is not None:
            watched = self.optimizers.observed(before_pause, after_pause)
        with watched:
            self.result = self.function(*self.args, **self.kwargs)
        tensors, self.structure = take_apart(self.result)
        return tensors

    def record(self, builder: _C.ProgramBuilder) -> list[torch.Tensor]:
        self.steps = []
        with self.optimizers.recorded(builder, self.steps, self.undo):
            self.result, ran = record(
                builder, lambda: self.function(*self.args, **self.kwargs), ModuleNames(self.function)
            )
        self.modules = list({id(m): m for m in [*self.modules, *ran]}.values())
        self.went_backward = builder.went_backward()
        if self.went_backward:
            refuse_backward_hooks(builder, [*self._leaves(), *builder.leaves()], self.modules)
        tensors, self.structure = take_apart(self.result)
        if (name := class_of_its_own(tensors)) and not builder.refused():
            builder.refuse(
                "a result",
                f"it is a {name}, a class of tensors of its own, and a replay makes plain tensors",
                "Return a plain tensor: x.as_subclass(torch.Tensor)",
                "",
            )
        return tensors

    def record_backward(self, builder: _C.ProgramBuilder, backward: Callable[[], None]) -> None:
        self.went_backward = True
        refuse_backward_hooks(builder, [*self._leaves(), *builder.leaves()], self.modules)
        if not builder.refused():
            record(builder, backward, ModuleNames(self.function))

    def outside(self) -> list[torch.Tensor]:
        return outside_tensors(self.modules) + tensors_read_by(self.function) + self.static

    def _leaves(self) -> list[torch.Tensor]:
        """All tensors outside that are known to take part, or may."""
        groups = [group for step in self.steps for group in step.optimizer.param_groups]
        trained = [parameter for group in groups for parameter in group["params"]]
        return [*self.outside(), *trained, *tensors_named_by(self.function)]

    def kept(self, storages: set[int]) -> list[torch.Tensor]:
        self.escapes = find_kept(self.modules, [step.lent for step in self.steps], storages)
        if len({id(tensor) for _, _, tensor in self.escapes}) < len(storages):
            gc.collect()  # a cycle may still hold what is no longer in use
        return [tensor for _, _, tensor in self.escapes]

    def watch(self, outside: list[torch.Tensor]) -> tuple[list, list, list, list, list]:
        places = Places(self.function, self.modules, outside)
        for step in self.steps:
            if not step.on_host:
                places.add_optimizer(step.optimizer, step.numbers)
        if self.went_backward:
            places.add_backward_pass()
        on_host = [(step.name, step.run) for step in self.steps if step.on_host]
        return places.entries, places.cells, places.sizes, self.escapes, on_host

    def take_over(self, step: int) -> bool:
        """The engine cannot replay a step of an optimizer, counted from one."""
        optimizer = self.steps[step - 1].optimizer
        self.optimizers.leave_to_host(
            optimizer, "it computes with numbers that change from call to call, or on the CPU"
        )
        return True

    warn = staticmethod(messages.warn)
    log = staticmethod(messages.log.info)


def _somebody_else_watches() -> bool:
    """Another mode of PyTorch's dispatcher (torch.export, fake tensors, a mode that counts), a tracer, forward-mode
    differentiation or a transform of torch.func wants to see every operator itself; or checkpointing around this call,
    or another hook, every tensor that autograd keeps."""
    return (
        _len_torch_dispatch_stack() > 0
        or _get_tracing_state() is not None
        or forward_ad._current_level >= 0
        or maybe_current_level() is not None
        or (torch.is_grad_enabled() and _top_saved_tensors_default_hooks(True) is not None)
    )


class CompiledFunction:
    """Answers like the function it was made from, from a schedule made ahead of time."""

    def __init__(
        self,
        function: Callable,
        options: _C.CompileOptions,
        static: list[torch.Tensor] | None = None,
        asked_for: dict[str, Any] | None = None,
    ):
        self._function = function
        self._asked_for = asked_for or {}
        self._strict = options.strict
        self._warned = False
        self._is_method = False  # its first argument is an object whose class it was defined in
        self._compiled = compiled = _C.Compiled(options)
        self._arguments = Arguments(most=max(256, 4 * options.cache_size))
        self._static = static or []
        self._optimizers = Optimizers(lambda: compiled.stats()["replays"])
        self._last_call: LastCall | None = None
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args, **kwargs):
        if _somebody_else_watches():
            return self._function(*args, **kwargs)
        try:
            inputs, variant = self._arguments.flatten(args, kwargs)
        except OwnTensorClass as refusal:
            return self._run_eagerly(refusal, args, kwargs)
        replayed = self._compiled.replay_if_ready(inputs, variant)
        if replayed is None:
            call = self._call(args, kwargs)
            self._last_call = LastCall(args, kwargs)
            replayed = self._compiled.call(inputs, variant, call)
            if replayed is None:
                return call.result
        outputs, structure = replayed
        return structure.fill(outputs)

    def __get__(self, owner: object, owner_class: type | None = None) -> Callable:
        """A method, where a function would be one: `@nimble.compile` inside of a class."""
        if owner is None or not isinstance(self._function, types.FunctionType):
            return self
        self._is_method = True
        return types.MethodType(self, owner)

    def _run_eagerly(self, refusal: OwnTensorClass, args: tuple, kwargs: dict) -> Any:
        if self._strict:
            raise refusal
        if not self._warned:
            messages.warn(f"{refusal}. Such calls run eagerly")
            self._warned = True
        return self._function(*args, **kwargs)

    def __copy__(self) -> "CompiledFunction":
        return compile(copy.copy(self._function), **self._asked_for)

    def __deepcopy__(self, memo: dict) -> "CompiledFunction":
        return compile(copy.deepcopy(self._function, memo), **self._asked_for)

    def __reduce_ex__(self, _protocol: int) -> tuple:
        """What was recorded is of this process: whoever reads it records anew."""
        return _compiled_anew, (self._function, self._asked_for)

    def prepare(self, *args, **kwargs):
        """Records, checks and plans for arguments like these now, and leaves all state as it was.

        For a module `training=True` asks for calls with grad enabled, forward and backward, and `training=False` for
        calls without; by default it is as it is now. (Unless its forward has an argument of that name, which it gets.)
        Raises RecordError or ValidationError if such a call cannot be replayed."""
        with_grad = torch.is_grad_enabled()
        if "training" in kwargs and self._is_module_without("training"):
            with_grad = kwargs.pop("training")
        inputs, variant = self._arguments.flatten(args, kwargs)
        before = StatesBefore()
        try:
            with torch.set_grad_enabled(with_grad):
                self._last_call = LastCall(args, kwargs)
                self._compiled.prepare(inputs, variant, self._call(args, kwargs, before))
        finally:
            before.restore()
        return self

    def _is_module_without(self, argument: str) -> bool:
        if not isinstance(self._function, torch.nn.Module):
            return False
        return argument not in inspect.signature(self._function.forward).parameters

    def _call(self, args: tuple, kwargs: dict, undo: StatesBefore | None = None) -> _Call:
        function = self._function
        if self._is_method and args:  # bound again: what a recording depends on may lie in its object
            function, args = types.MethodType(function, args[0]), args[1:]
        return _Call(function, args, kwargs, self._static, self._optimizers, undo)

    def refresh(self) -> None:
        """Forgets every recording: after a change that no guard can see."""
        self._compiled.refresh()
        self._arguments.clear()
        self._last_call = None

    @property
    def stats(self) -> dict[str, int | float]:
        return self._compiled.stats()

    def explain(self) -> str:
        """Where each signature stands, what was chosen and why. In colour when printed on a terminal."""
        return Explanation(self._compiled.explain())

    def report(self, path: str | os.PathLike, /, *args, **kwargs) -> None:
        """Writes a page with the timeline of a replay beside eager's, the task graph and the memory plan.

        Measures the schedule for arguments like these, by default for those of the last recording; all state is put
        back, but Python code in the function runs some more times (docs/report.md)."""
        write_page(self._document(args, kwargs), path)

    def trace(self, path: str | os.PathLike, /, *args, **kwargs) -> None:
        """Writes the same timelines as Chrome trace events, for Perfetto (ui.perfetto.dev)."""
        write_trace(self._document(args, kwargs), path)

    def _document(self, args: tuple, kwargs: dict, eager: bool = True) -> dict:
        if self._last_call is None:
            raise _C.Error(
                "[nimble::report] nothing is recorded yet: call the function, or prepare() it, first"
            )
        if args or kwargs:
            document = measured_document(self, args, kwargs, eager=eager)
            if document["parts"]:
                return document
        else:
            args, kwargs = self._last_call.arguments()
        with self._last_call.settings():
            return measured_document(self, args, kwargs, eager=eager)

    def program(self) -> str:
        """The recorded program of the signature used last, one line for each task."""
        return self._compiled.program()

    def task_graph(self) -> str:
        """The task graph of the signature used last as JSON, which nimble-plan reads."""
        return self._compiled.task_graph()


class CompiledModule:
    """Mixed into the class of a compiled module, whose state it shares: the same parameters, buffers, attributes and
    mode, seen through another object. Only the call differs."""

    __slots__ = ("_nimble",)

    def __init_subclass__(cls, **_kwargs) -> None:
        """Not the model's, for whom this is no class of its own: it might want arguments, or put it into a list."""

    def __call__(self, *args, **kwargs):
        return self._nimble(*args, **kwargs)

    def __copy__(self) -> torch.nn.Module:
        return copy.copy(self._nimble)

    def __deepcopy__(self, memo: dict) -> torch.nn.Module:
        return copy.deepcopy(self._nimble, memo)

    def __reduce_ex__(self, protocol: int) -> tuple:
        return self._nimble.__reduce_ex__(protocol)

    def _get_name(self) -> str:
        return f"Compiled{super()._get_name()}"  # in its repr; others go by the name of its class

    def prepare(self, *args, **kwargs):
        self._nimble.prepare(*args, **kwargs)
        return self

    refresh = property(lambda self: self._nimble.refresh)
    stats = property(lambda self: self._nimble.stats)
    explain = property(lambda self: self._nimble.explain)
    report = property(lambda self: self._nimble.report)
    trace = property(lambda self: self._nimble.trace)
    program = property(lambda self: self._nimble.program)
    task_graph = property(lambda self: self._nimble.task_graph)


def _compile_module(module: torch.nn.Module, function: CompiledFunction) -> torch.nn.Module:
    cls = type(module)
    named_alike = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    try:
        compiled_class = type(cls.__name__, (CompiledModule, cls), named_alike)
        compiled = object.__new__(compiled_class)  # the model's own __new__ may make something else
    except TypeError as error:  # it has __slots__, or is a dict as well, which no other object could share
        raise TypeError(
            f"{cls.__name__} cannot be seen through another object ({error}): compile a function that calls it, as "
            "nimble.compile(lambda x: model(x))"
        ) from error
    object.__setattr__(compiled, "__dict__", module.__dict__)
    object.__setattr__(compiled, "_nimble", function)
    return compiled


def _compiled_anew(model: Callable, options: dict[str, Any]) -> Callable:
    return compile(model, **options)


def _is_from_torch_compile(model: Callable) -> bool:
    if getattr(model, "_torchdynamo_disable", False):  # what it must not touch bears its marks too
        return False
    return type(model).__name__ == "OptimizedModule" or hasattr(model, "_torchdynamo_orig_callable")


def _refuse_what_is_no_plain_module(model: Callable) -> None:
    if _is_from_torch_compile(model):
        raise TypeError(
            "this was made by torch.compile, which records by itself: pass the model that it was made from, or use "
            'torch.compile(model, backend="nimble")'
        )
    if isinstance(model, CompiledModule | CompiledFunction):
        raise TypeError("this is compiled already: pass the model itself to nimble.compile")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "this was made by torch.jit.script or torch.jit.trace, and runs without Python: pass the module that it "
            "was made from to nimble.compile"
        )
    if any(cls.__name__ == "FSDPModule" for cls in type(model).__mro__):  # whose import takes long
        raise TypeError(
            "this was sharded by fully_shard, whose hooks gather its parameters from other processes at each call: "
            "leave it as it is, or compile modules that are not sharded"
        )


_TO_COME = object()


def compile(model: Callable = _TO_COME, **options):
    """Makes a callable that answers like `model` (a module or a function), faster.

    The first call with a new signature runs eagerly and is recorded; the next is run both ways and compared; from then
    on calls are replayed. Options, also settable as NIMBLE_<NAME> in the environment:

    strict (False)       raise RecordError, GuardError or ValidationError instead of falling back to eager
    outputs ("copy")     "alias": results lie in memory that the next call overwrites
    validate_every (0)   run every n-th call both ways again
    cache_size (8)       how many signatures are kept
    streams ("auto")     how many streams: measured, "max", or a number
    memory ("shared")    "apart": every buffer in bytes of its own, to see what sharing saves
    graph (True)         CUDA: a replay is one graph. False: stream by stream, for debuggers and difficult drivers
    tune (0.5)           seconds that measuring may take
    rewrites ("none")    "default" for all, "none", or a list of names from nimble.rewrites()
    tolerance ("auto")   how far rewritten results may be from eager's, relative to their largest value; a number
                         allows rewrites that round otherwise in training too
    """
    if model is _TO_COME:  # @nimble.compile(streams=1)
        return functools.partial(compile, **options)
    if not callable(model):
        raise TypeError(f"nimble.compile needs a module or a function, not {type(model).__name__}")
    _refuse_what_is_no_plain_module(model)
    function = CompiledFunction(model, compile_options(**options), asked_for=options)
    return _compile_module(model, function) if isinstance(model, torch.nn.Module) else function


class Nimble:
    """The form of the paper: `Nimble(model).prepare(x)`, then call it."""

    def __new__(cls, model: Callable, **options):
        return compile(model, **options)


def cuda_available() -> bool:
    """Whether this build has a CUDA backend and a GPU to run it on."""
    return _C.cuda_available()


def why_no_cuda() -> str:
    """What CUDA would need; empty where it is available."""
    return _C.why_no_cuda()


def rewrites() -> dict[str, str]:
    """The rewrites there are, in the order in which they are applied, and what each does."""
    return _C.rewrites()


def is_recording() -> bool:
    """Whether this thread is being recorded or checked, so that code may leave out what cannot be replayed."""
    return _C.is_recording()
