// ONNX models from memory, as workloads and as networks that Python calls on memory of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/loaded_network.h"

namespace tilewright::python {

/// {"workload", "names", "skipped", "notes", "unused"} of the bytes of an ONNX model that lies at
/// `path`, where its weights are: JSON. Without `skip`, throws InputError that names every node
/// that is not supported.
std::string import_model(const std::string& bytes, const std::string& path, bool skip);

/// A loaded network, its inputs and outputs by the model's names.
class Network {
 public:
  /// `options`: those of `run`, as JSON. `kept`: address and bytes of inputs that are the same in
  /// every run, by name; they are copied, and no call gives them. Throws InputError for what is not
  /// supported, and std::runtime_error where the target refuses.
  Network(const std::string& bytes, const std::string& options, bool verify,
          const std::map<std::string, std::pair<std::uintptr_t, std::int64_t>>& kept);

  struct End {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
  };
  const std::vector<End>& inputs() const { return inputs_; }
  const std::vector<End>& outputs() const { return outputs_; }
  /// {"launches", "predicted_seconds", "notes"}: JSON.
  std::string describe() const;
  /// Addresses of elements, row-major, in the order of inputs() and outputs().
  void run(const std::vector<std::uintptr_t>& inputs, const std::vector<std::uintptr_t>& outputs);

 private:
  std::unique_ptr<harness::LoadedNetwork> network_;
  std::vector<End> inputs_, outputs_;
  std::vector<std::string> notes_;
};

}  // namespace tilewright::python
