// onnxruntime, where a Python of this machine has it, on the inputs that a program ran on.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilewright::harness {

struct BesideAsked {
  std::string subject;  ///< "model.onnx:batch=1"
  std::string python;   ///< a name on the PATH, or a path
  int threads = 1;
  double seconds = 2;                                          ///< of timing, about
  bool values = false;                                         ///< what it computes is asked for
  std::map<std::string, std::vector<double>> inputs, outputs;  ///< by ONNX name; ours, row-major
};

struct Beside {
  /// {"available", "reason"}, or {"available", "version", "threads", "seconds": [of each run],
  /// "outputs": [{"name", "dtype", "relative_error"}]}: max |ours - theirs| / max |theirs|. Where
  /// values are asked for, the file has operators of bytes, and the processor has no instructions
  /// for quads of them: "saturation_error", by how much its results by default differ from those
  /// by exact sums, in that measure. Values and outputs are then of exact sums, seconds by default.
  nlohmann::ordered_json json;
  std::map<std::string, std::vector<double>> outputs = {};  ///< theirs, where asked for
};
/// Never throws: what is wrong with that Python is its reason.
Beside beside_onnxruntime(const BesideAsked& asked);

}  // namespace tilewright::harness
