// The module: one function, from a verb and its options as JSON to the answer as JSON; those of
// sweeps and of models written in Python. The package around it (tilewright/__init__.py) gives the
// verbs their signatures.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/workload/reference/evaluate.h"
#include "experiments/report/verbs.h"
#include "harness/points.h"
#include "harness/registry.h"
#include "python/added_model.h"
#include "python/asked.h"
#include "python/network.h"
#include "python/sweep.h"
#include "python/tensor_call.h"

namespace tilewright::python {
namespace {

nlohmann::ordered_json parsed(const std::string& options) {
  auto json = nlohmann::ordered_json::parse(options, nullptr, false);
  if (json.is_object()) return json;
  throw InputError({.field = "options",
                    .value = options.substr(0, 80),
                    .problem = "is not accepted",
                    .accepted = "an object of JSON"});
}

/// (document, whether it says yes). No Python object is touched, so other threads may run.
std::pair<std::string, bool> call(const std::string& name, const std::string& options) {
  using Json = nlohmann::ordered_json;
  const harness::Verb* verb = harness::find_verb(name);
  if (verb == nullptr) {
    std::vector<std::string> names;
    for (const harness::Verb& v : harness::verbs()) names.push_back(v.name);
    throw InputError(
        {.field = "verb", .value = name, .problem = "is not a verb", .accepted = join(names)});
  }
  const harness::Answer answer = harness::ask(*verb, asked_of(*verb, parsed(options)));
  return {answer.json.dump(-1, ' ', false, Json::error_handler_t::replace), answer.ok()};
}

struct Values {
  std::string tensor;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

/// Every tensor that goes in or comes out, evaluated for seeded inputs. No Python object is
/// touched.
std::vector<Values> evaluated(const std::string& options) {
  const harness::Verb verb{
      .name = "evaluate", .summary = "", .options = harness::shared_options({"rewrite", "seed"})};
  const harness::Request request = harness::request_of(verb, asked_of(verb, parsed(options)));
  const auto workload = harness::workload_of(request).workload;
  const TensorValues values = evaluate(*workload, random_inputs(*workload, request.seed));
  std::vector<Values> all;
  for (std::size_t t = 0; t < values.size(); ++t) {
    const Tensor& tensor = workload->tensor(TensorId(t));
    if (workload->is_input(TensorId(t)) || workload->is_output(TensorId(t)))
      all.push_back({tensor.name, {tensor.shape.begin(), tensor.shape.end()}, values[t]});
  }
  return all;
}

}  // namespace
}  // namespace tilewright::python

PYBIND11_MODULE(_tilewright, m) {
  namespace py = pybind11;
  m.doc() = "Tilewright's verbs; use the package `tilewright`.";
  py::register_exception<tilewright::InputError>(m, "InputError", PyExc_ValueError);
  m.def("call", [](const std::string& verb, const std::string& options) {
    std::pair<std::string, bool> answer;
    {
      py::gil_scoped_release release;
      answer = tilewright::python::call(verb, options);
    }
    return py::make_tuple(py::str(answer.first), answer.second);
  });
  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("sweep_points", &tilewright::python::sweep_points, Release());
  m.def("sweep_rows", &tilewright::python::sweep_rows, Release());
  m.def("verbs", [] { return tilewright::harness::verbs_json().dump(); });
  m.def("build_hash", &tilewright::harness::build_hash, Release());
  m.def("evaluate", [](const std::string& options) {
    std::vector<tilewright::python::Values> all;
    {
      py::gil_scoped_release release;
      all = tilewright::python::evaluated(options);
    }
    py::list list;
    for (const auto& v : all)
      list.append(py::make_tuple(v.tensor, v.shape,
                                 py::bytes(reinterpret_cast<const char*>(v.values.data()),
                                           v.values.size() * sizeof(double))));
    return list;
  });
  using tilewright::python::Network;
  m.def("import_onnx", [](const py::bytes& bytes, const std::string& path, bool skip) {
    const std::string model = bytes;
    py::gil_scoped_release release;
    return tilewright::python::import_model(model, path, skip);
  });
  py::class_<Network::End>(m, "End")
      .def_readonly("name", &Network::End::name)
      .def_readonly("dtype", &Network::End::dtype)
      .def_readonly("shape", &Network::End::shape);
  py::class_<Network>(m, "Network")
      .def(py::init([](const py::bytes& bytes, const std::string& options, bool verify,
                       const std::map<std::string, std::pair<std::uintptr_t, std::int64_t>>& kept) {
        const std::string model = bytes;
        py::gil_scoped_release release;
        return std::make_unique<Network>(model, options, verify, kept);
      }))
      .def_property_readonly("inputs", &Network::inputs)
      .def_property_readonly("outputs", &Network::outputs)
      .def("describe", &Network::describe)
      .def("run", &Network::run, Release());
  using tilewright::python::TensorCall;
  py::class_<TensorCall>(m, "TensorCall")
      .def(py::init<Network&, py::sequence, py::sequence, std::vector<std::size_t>, py::object,
                    py::object>(),
           py::keep_alive<1, 2>())
      .def("__call__", &TensorCall::operator());
  m.def("add_model", &tilewright::python::add_model);
  m.def("remove_model", &tilewright::harness::remove_model);
}
