// The module: one function, from a verb and its options as JSON to the answer as JSON; those of
// sweeps and of models written in Python. The package around it (tilewright/__init__.py) gives the
// verbs their signatures.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "core/workload/reference/evaluate.h"
#include "harness/points.h"
#include "harness/registry.h"
#include "python/added_model.h"
#include "python/options.h"
#include "python/sweep.h"

namespace tilewright::python {
namespace {

using harness::Answer;

struct Verb {
  const char* name;
  Answer (*run)(const Invocation&);
};

constexpr Verb kVerbs[] = {
    {"models", [](const Invocation&) { return harness::list_models(); }},
    {"machines", [](const Invocation&) { return harness::list_machines(); }},
    {"workloads", [](const Invocation&) { return harness::list_workloads(); }},
    {"targets", [](const Invocation&) { return harness::list_targets(); }},
    {"meters", [](const Invocation&) { return harness::list_meters(); }},
    {"experiments", [](const Invocation&) { return harness::list_experiments(); }},
    {"explain",
     [](const Invocation& i) {
       return i.curve ? harness::explain_curve(i.request) : harness::explain(i.request, i.resolved, i.out);
     }},
    {"plan", [](const Invocation& i) { return harness::plan(i.request, i.out); }},
    {"predict", [](const Invocation& i) { return harness::predict(i.request); }},
    {"compare", [](const Invocation& i) { return harness::compare(i.request, i.models); }},
    {"simulate", [](const Invocation& i) { return harness::simulate(i.request, i.walk); }},
    {"emit", [](const Invocation& i) { return harness::emit(i.request, i.emit); }},
    {"run",
     [](const Invocation& i) {
       return i.batch ? harness::run_batch(i.request, i.run, *i.batch, i.out)
                      : harness::run(i.request, i.run);
     }},
    {"measure",
     [](const Invocation& i) {
       return i.batch ? harness::measure_batch(i.request, i.measure, *i.batch, i.out)
                      : harness::measure(i.request, i.measure);
     }},
    {"validate", [](const Invocation& i) { return harness::validate(i.request, i.validate); }},
    {"reproduce", [](const Invocation& i) { return harness::reproduce(i.request, i.reproduce); }},
};

/// (document, whether it says yes). No Python object is touched, so other threads may run.
std::pair<std::string, bool> call(const std::string& verb, const std::string& options) {
  using Json = nlohmann::ordered_json;
  for (const Verb& v : kVerbs) {
    if (verb != v.name) continue;
    const Answer answer = v.run(invocation_of(Json::parse(options)));
    return {answer.json.dump(-1, ' ', false, Json::error_handler_t::replace), answer.ok()};
  }
  throw InputError({.field = "verb", .value = verb, .problem = "is no verb"});
}

struct Values {
  std::string tensor;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

/// Every tensor that goes in or comes out, evaluated for seeded inputs. No Python object is touched.
std::vector<Values> evaluated(const std::string& options) {
  const Invocation i = invocation_of(nlohmann::ordered_json::parse(options));
  const auto workload = harness::workload_of(i.request).workload;
  const TensorValues values = evaluate(*workload, random_inputs(*workload, i.request.seed));
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
  m.def("add_model", &tilewright::python::add_model);
  m.def("remove_model", &tilewright::harness::remove_model);
}
