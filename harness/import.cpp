// import: an ONNX file as a workload file.
#include "core/base/document.h"
#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"
#include "core/workload/text.h"
#include "harness/files.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Each of those inputs or outputs: its ONNX name and what it is here.
ordered_json ends(const OnnxImport& made, bool inputs) {
  ordered_json all = ordered_json::array();
  for (const auto& [onnx, name] : made.tensors) {
    const TensorId id = made.workload.find_tensor(name).value();
    const Tensor& t = made.workload.tensor(id);
    if (made.workload.is_input(id) == inputs)
      all.push_back(
          {{"name", onnx}, {"tensor", name}, {"shape", t.shape}, {"dtype", name_of(t.dtype)}});
  }
  return all;
}

/// Inputs that runs draw by seed: those whose values no file has.
ordered_json drawn(const Workload& w) {
  ordered_json names = ordered_json::array();
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_input(TensorId(t)) && w.tensors()[t].drawn()) names.push_back(w.tensors()[t].name);
  return names;
}

/// Bytes of inputs whose values stay the same: weights.
Bytes weights(const Workload& w) {
  Bytes sum;
  for (const Tensor& t : w.tensors())
    if (t.values) sum += t.bytes();
  return sum;
}

}  // namespace

Answer import_model(const Request& request, const ImportOptions& options) {
  if (!names_onnx(request.subject))
    throw InputError({.where = "import",
                      .value = request.subject.empty() ? "an empty name" : request.subject,
                      .problem = "is not an ONNX file",
                      .accepted = "a path that ends in .onnx"});
  OnnxOptions asked{.skip = options.skip};
  for (const std::string& text : options.bind)
    for (const auto& [name, n] : parse_bindings(text, "--bind")) asked.bind[name] = n;
  const OnnxImport made = import_named_onnx(request.subject, asked);
  if (options.out)
    write_with_values(*options.out, made.workload, [](const Workload& w) { return to_yaml(w); });
  auto json = document();
  json["file"] = request.subject;
  json["producer"] = made.producer;
  json["opset"] = made.opset;
  json["nodes"] = made.nodes;
  json["workload"] = made.workload.name();
  json["operators"] = made.workload.operators().size();
  json["tensors"] = made.workload.tensors().size();
  json["flops"] = made.workload.flops();
  json["weight_bytes"] = weights(made.workload).value;
  json["inputs"] = ends(made, true);
  json["outputs"] = ends(made, false);
  json["drawn"] = drawn(made.workload);
  json["notes"] = made.notes;
  json["unused"] = made.unused;
  json["skipped"] = made.skipped;
  if (options.out) json["out"] = *options.out;
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
