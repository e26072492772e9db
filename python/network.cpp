#include "python/network.h"

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/workload/import/onnx_import.h"
#include "core/workload/text.h"
#include "experiments/report/verbs.h"
#include "python/asked.h"

namespace tilewright::python {
namespace {

using Json = nlohmann::ordered_json;

std::vector<void*> pointers(const std::vector<std::uintptr_t>& addresses, std::size_t count) {
  if (addresses.size() != count) throw std::invalid_argument("as many addresses as tensors");
  std::vector<void*> all;
  for (const std::uintptr_t a : addresses)
    all.push_back(reinterpret_cast<void*>(a));  // NOLINT: what Python calls an address
  return all;
}

}  // namespace

std::string import_model(const std::string& bytes, const std::string& path, bool skip) {
  const OnnxImport made = import_onnx(bytes, path, {.skip = skip});
  return Json{{"workload", to_json(made.workload)},
              {"names", made.tensors},
              {"skipped", made.skipped},
              {"notes", made.notes},
              {"unused", made.unused}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Network::Network(const std::string& bytes, const std::string& options, bool verify,
                 const std::map<std::string, std::pair<std::uintptr_t, std::int64_t>>& kept) {
  const OnnxImport made = import_onnx(bytes, "graph.onnx");
  WorkloadSpec spec = made.workload.spec();
  harness::LoadedNetwork::Kept contents;
  for (const auto& [name, given] : kept) {
    const auto found = made.tensors.find(name);
    if (found == made.tensors.end()) continue;  // nothing reads it
    Tensor& tensor = spec.tensors[made.workload.find_tensor(found->second)->index()];
    if (tensor.bytes().value != given.second)
      throw std::invalid_argument(name + ": as many bytes as the input has");
    contents[tensor.name] = reinterpret_cast<const void*>(given.first);  // NOLINT
    tensor.values = SharedValues(tilewright::Values{});
  }
  const Workload workload = Workload::create(std::move(spec));
  const harness::Verb& verb = *harness::find_verb("run");
  harness::Asked asked = asked_of(verb, Json::parse(options));
  asked.subject = "workload";
  asked.subject_text = to_yaml(workload);
  auto loaded = harness::LoadedNetwork::load(harness::request_of(verb, asked), verify, contents);
  if (!loaded) throw std::runtime_error(loaded.reason());
  network_ = std::move(loaded).value();
  notes_ = made.notes;
  notes_.insert(notes_.end(), network_->notes().begin(), network_->notes().end());
  std::map<std::string, std::string> names;
  for (const auto& [onnx, tensor] : made.tensors) names[tensor] = onnx;
  const Workload& w = network_->workload();
  const auto end = [&](TensorId t) {
    const Tensor& tensor = w.tensor(t);
    return End{names.at(tensor.name), std::string(name_of(tensor.dtype)), tensor.shape};
  };
  for (TensorId t : network_->inputs()) inputs_.push_back(end(t));
  for (TensorId t : w.outputs()) outputs_.push_back(end(t));
}

std::string Network::describe() const {
  const auto predicted = network_->predicted();
  return Json{{"launches", network_->launches()},
              {"predicted_seconds", predicted ? Json(*predicted) : Json(nullptr)},
              {"notes", notes_}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Network::run(const std::vector<std::uintptr_t>& inputs,
                  const std::vector<std::uintptr_t>& outputs) {
  if (const auto why =
          network_->run(pointers(inputs, inputs_.size()), pointers(outputs, outputs_.size())))
    throw std::runtime_error(why->text);
}

}  // namespace tilewright::python
