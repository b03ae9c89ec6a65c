#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "module_guard.h"
#include "nimble/engine/compiled.h"
#include "nimble/torch/rewrites/registry.h"
#include "operator_call.h"
#include "python_host.h"

namespace py = pybind11;

namespace nimble::python {
namespace {

// (outputs, structure) if the call was replayed; None if the user's function has just run.
py::object to_python(CallResult result) {
  if (!result.replayed) return py::none();
  const auto& note = dynamic_cast<const StructureNote&>(*result.note);
  return py::make_tuple(std::move(result.outputs), note.structure);
}

py::object replay_if_ready(Compiled& compiled, const Tensors& inputs, std::int64_t variant) {
  const auto entry = compiled.ready(inputs, variant);
  if (!entry) return py::none();
  CallResult result;
  {
    const py::gil_scoped_release release;
    result = compiled.replay(entry, inputs);
  }
  return to_python(std::move(result));
}

py::dict to_dict(const Stats& stats) {
  py::dict dict;
  const auto put = [&](const char* name, auto value) { dict[name] = value; };
  put("recordings", stats.recordings);
  put("validations", stats.validations);
  put("replays", stats.replays);
  put("eager_calls", stats.eager_calls);
  put("refusals", stats.refusals);
  put("evictions", stats.evictions);
  put("cached", stats.cached);
  put("tasks", stats.tasks);
  put("streams", stats.streams);
  put("syncs", stats.syncs);
  put("degree_of_concurrency", stats.degree_of_concurrency);
  put("arena_bytes", stats.arena_bytes);
  put("allocated_bytes", stats.allocated_bytes);
  put("unplanned_allocations", stats.unplanned_allocations);
  put("static_bytes", stats.static_bytes);
  put("workspace_bytes", stats.workspace_bytes);
  put("record_milliseconds", stats.record_milliseconds);
  put("plan_milliseconds", stats.plan_milliseconds);
  put("tune_milliseconds", stats.tune_milliseconds);
  return dict;
}

void bind_errors(py::module_& module) {
  static py::exception<Error> error(module, "Error", PyExc_RuntimeError);
  static py::exception<RecordError> record_error(module, "RecordError", error);
  static py::exception<GuardError> guard_error(module, "GuardError", error);
  static py::exception<ValidationError> validation_error(module, "ValidationError", error);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const RecordError& e) {
      PyErr_SetString(record_error.ptr(), e.what());
    } catch (const GuardError& e) {
      PyErr_SetString(guard_error.ptr(), e.what());
    } catch (const ValidationError& e) {
      PyErr_SetString(validation_error.ptr(), e.what());
    } catch (const Error& e) {
      PyErr_SetString(error.ptr(), e.what());
    }
  });
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "Nimble's engine. Use the package `nimble`, which this is a part of.";
  bind_errors(module);

  py::class_<ProgramBuilder>(module, "ProgramBuilder")
      .def("call", &call_operator)
      .def("refuse",
           [](ProgramBuilder& builder, std::string what, std::string why, std::string advice,
              std::string where) {
             builder.refuse({std::move(what), std::move(why), std::move(advice), std::move(where)});
           })
      .def("set_module", &ProgramBuilder::set_module)
      .def("begin_step", &ProgramBuilder::begin_step)
      .def("end_step", &ProgramBuilder::end_step)
      .def("pause", &ProgramBuilder::pause)
      .def("resume", &ProgramBuilder::resume)
      .def("went_backward", &ProgramBuilder::went_backward)
      .def("leaves", &ProgramBuilder::leaves)
      .def("refused", [](const ProgramBuilder& builder) { return builder.refusal().has_value(); })
      .def("is_constant", &ProgramBuilder::is_constant);

  py::class_<CompileOptions>(module, "CompileOptions")
      .def(py::init<>())
      .def_readwrite("strict", &CompileOptions::strict)
      .def_readwrite("alias_outputs", &CompileOptions::alias_outputs)
      .def_readwrite("validate_every", &CompileOptions::validate_every)
      .def_readwrite("cache_size", &CompileOptions::cache_size)
      .def_readwrite("streams", &CompileOptions::streams)
      .def_readwrite("share_memory", &CompileOptions::share_memory)
      .def_readwrite("graph", &CompileOptions::graph)
      .def_readwrite("tune_seconds", &CompileOptions::tune_seconds)
      .def_readwrite("rewrites", &CompileOptions::rewrites)
      .def_readwrite("tolerance", &CompileOptions::tolerance);

  py::class_<StateBefore>(module, "StateBefore").def("restore", &StateBefore::restore);

  py::class_<Compiled>(module, "Compiled")
      .def(py::init<CompileOptions>())
      .def("replay_if_ready", &replay_if_ready)
      .def("call",
           [](Compiled& compiled, const Tensors& inputs, std::int64_t variant, py::object host) {
             PythonHost adapter(std::move(host));
             CallResult result;
             {
               const py::gil_scoped_release release;
               result = compiled.call(inputs, variant, adapter);
             }
             return to_python(std::move(result));
           })
      .def("prepare",
           [](Compiled& compiled, const Tensors& inputs, std::int64_t variant, py::object host) {
             PythonHost adapter(std::move(host));
             const py::gil_scoped_release release;
             compiled.prepare(inputs, variant, adapter);
           })
      .def("refresh", &Compiled::refresh, py::call_guard<py::gil_scoped_release>())
      .def("stats", [](const Compiled& compiled) { return to_dict(compiled.stats()); })
      .def("program", &Compiled::program)
      .def("task_graph", &Compiled::task_graph)
      .def("explain", &Compiled::explain)
      .def("report", &Compiled::report, py::call_guard<py::gil_scoped_release>())
      .def("state_before", &Compiled::state_before, py::call_guard<py::gil_scoped_release>());

  module.attr("DEFAULT_REWRITES") = kDefaultRewrites;
  module.def("rewrites", [] {
    py::dict summaries;
    for (const Rewrite* rewrite : all_rewrites())
      summaries[py::str(rewrite->name)] = py::str(rewrite->summary);
    return summaries;
  });
  py::list come_with_others, for_training;
  for (const Rewrite* rewrite : all_rewrites()) {
    if (rewrite->always) come_with_others.append(py::str(rewrite->name));
    if (rewrite->for_training) for_training.append(py::str(rewrite->name));
  }
  module.attr("REWRITES_THAT_COME_WITH_OTHERS") = come_with_others;
  module.attr("REWRITES_FOR_TRAINING") = for_training;
  module.def("is_recording", &is_recording);
  module.def("cuda_available", &cuda_available);
  module.def("why_no_cuda", [] {
    try {
      cuda_backend();
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
}

}  // namespace nimble::python
