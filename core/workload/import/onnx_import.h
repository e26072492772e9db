// ONNX files as workloads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

struct OnnxOptions {
  std::map<std::string, std::int64_t> bind = {};  ///< symbolic dimensions
  /// What is not supported becomes an input where its shape is known, and what it alone reads an
  /// output; else it is an error.
  bool skip = false;
};

struct OnnxImport {
  Workload workload;
  std::string producer;
  std::int64_t opset = 0;
  std::map<std::string, std::int64_t> nodes;  ///< of the file, by operator
  std::vector<std::string> notes;    ///< what differs from the file: quantisation, 64-bit integers
  std::vector<std::string> skipped;  ///< "node: operator: why"
  std::vector<std::string> unused;   ///< inputs of the file that nothing reads
  std::map<std::string, std::string> tensors;  ///< ONNX inputs and outputs: the workload's tensors
};

/// Reads `path`. Throws InputError where it is no ONNX file, is cut off, has symbolic dimensions
/// that are not bound (all of them are named) or, without `skip`, nodes that are not supported (all
/// of them are named, a line each). Weights stay in the file: inputs of the workload have its
/// values (Tensor::values). Cost: linear in nodes and what they cut; not in weights.
OnnxImport import_onnx(const std::string& path, const OnnxOptions& options = {});
/// The same of bytes; `path` is where they are.
OnnxImport import_onnx(std::string_view bytes, const std::string& path,
                       const OnnxOptions& options = {});

/// "model.onnx" or "model.onnx:batch=1,seq=128", as named_workload takes it.
bool names_onnx(std::string_view subject);
OnnxImport import_named_onnx(std::string_view subject, OnnxOptions options = {});
/// "batch=1,seq=128". Throws InputError.
std::map<std::string, std::int64_t> parse_bindings(std::string_view text, std::string_view where);

}  // namespace tilewright
