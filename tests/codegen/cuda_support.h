// Emitted CUDA kernels run on the CPU by simulator/cuda_host: verdict and bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/cuda.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "models/exact/exact.h"
#include "simulator/cuda_host/cuda_host.h"

namespace tilewright::testing {

/// Several sources (with different prefixes) as one program. `from`, `to`: what is replaced,
/// wherever it stands in sources and headers, to plant a fault.
inline Result<cuda_host::Module> build_cuda(const std::vector<cuda::Source>& sources,
                                            const std::string& from = "",
                                            const std::string& to = "",
                                            const std::vector<cuda_host::Header>& more = {}) {
  cuda_host::Program program;
  for (const cuda::Source& s : sources) {
    program.text += s.text;
    std::set<std::string> functions;  // kernels that differ in names alone are one
    for (const cuda::Launch& l : s.launches)
      if (functions.insert(l.symbol).second) program.kernels.push_back(l.symbol);
  }
  for (const auto& h : cuda::device_headers())
    program.headers.push_back({std::string(h.name), std::string(h.text)});
  program.headers.insert(program.headers.end(), more.begin(), more.end());
  int replaced = 0;
  const auto plant = [&](std::string& text) {
    for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos;
         at += to.size()) {
      text.replace(at, from.size(), to);
      ++replaced;
    }
  };
  plant(program.text);
  for (cuda_host::Header& h : program.headers)
    if (h.name != "tilewright_device.h") plant(h.text);
  EXPECT_TRUE(from.empty() || replaced > 0) << from << " stands nowhere";
  return cuda_host::Module::build(program);
}

/// A tensor's values as its type stores them; NaN where there are none.
inline std::vector<char> stored(const Tensor& t, const std::vector<double>& values) {
  std::vector<char> bytes(static_cast<std::size_t>(t.bytes().value));
  if (values.empty())
    fill_with_nan(t.dtype, static_cast<std::size_t>(t.elements().value), bytes.data());
  else
    encode_elements(t.dtype, values, bytes.data());
  return bytes;
}
inline std::vector<double> read_back(const Tensor& t, const std::vector<char>& bytes) {
  return decode_elements(t.dtype, bytes.data(), static_cast<std::size_t>(t.elements().value));
}

struct CudaRun {
  cuda_host::Report report;
  double error = 0;                                                    ///< the worst of the outputs
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> bytes;  ///< tensor: read, written
  TensorValues outputs;                                                ///< by TensorId
};

inline Result<CudaRun> run_cuda(const cuda_host::Module& module, const cuda::Source& source,
                                const Workload& w, std::uint64_t seed,
                                cuda_host::RunOptions options = {}) {
  const TensorValues inputs = random_inputs(w, seed);
  std::vector<std::vector<char>> memory;
  std::vector<cuda_host::Tensor> tensors;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    memory.push_back(stored(tensor, inputs[t]));
    tensors.push_back(
        {.name = tensor.name,
         .data = memory.back().data(),
         .bytes = static_cast<std::int64_t>(memory.back().size()),
         .element_bytes = static_cast<int>(size_of(tensor.dtype)),
         .initialised = w.is_input(TensorId(t)),
         .written_before = source.written_before.empty() || source.written_before[t]});
  }
  std::vector<cuda_host::Launch> launches;
  for (const cuda::Launch& l : source.launches) {
    cuda_host::Launch one{.kernel = l.symbol,
                          .workspace = l.workspace,
                          .workspace_offset = l.workspace_offset,
                          .blocks = l.blocks,
                          .threads = l.threads,
                          .shared_bytes = l.shared_bytes,
                          .cooperative = l.cooperative,
                          .early = l.early,
                          .cluster = l.cluster};
    for (TensorId t : l.tensors) one.tensors.push_back(static_cast<int>(t.index()));
    one.maps = l.maps;
    launches.push_back(one);
  }
  options.workspace_bytes = source.workspace_bytes;
  auto report = module.run(launches, tensors, options);
  if (!report) return Reason{report.reason()};
  CudaRun run{.report = std::move(report).value()};
  const TensorValues reference = evaluate(w, inputs);
  run.outputs.resize(w.tensors().size());
  for (TensorId t : w.outputs()) {
    run.outputs[t.index()] = read_back(w.tensor(t), memory[t.index()]);
    run.error = std::max(run.error, relative_error(std::span<const double>(run.outputs[t.index()]),
                                                   std::span<const double>(reference[t.index()])));
  }
  for (const cuda_host::LaunchCounts& l : run.report.launches)
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      const cuda_host::TensorBytes& b = l.tensors[t];
      auto& [read, written] = run.bytes[w.tensors()[t].name];
      read += b.read;
      written += b.written + b.atomic;
      if (!options.without.empty()) continue;  // who reads what may be left to chance
      // What all threads read alike is counted once, and comes from L1 for the others.
      EXPECT_TRUE(b.read_through_l1 == 0 || b.read > 0) << w.tensors()[t].name;
      EXPECT_EQ(b.written_through_l1, 0) << w.tensors()[t].name;
    }
  std::erase_if(run.bytes,
                [](const auto& b) { return b.second == std::pair<std::int64_t, std::int64_t>(); });
  return run;
}

/// What `exact` counts between home and the kernels' level, by tensor.
inline std::map<std::string, std::pair<std::int64_t, std::int64_t>> exact_bytes(const Schedule& s) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> bytes;
  const std::string home = s.machine->level(s.machine->home()).name;
  for (const TrafficEntry& e : exact(s).entries)
    if (e.boundary.starts_with(home + "/")) {
      auto& [read, written] = bytes[e.tensor];
      read += e.read.value, written += e.written.value;
    }
  std::erase_if(bytes,
                [](const auto& b) { return b.second == std::pair<std::int64_t, std::int64_t>(); });
  return bytes;
}

/// What `exact` counts into and out of the SMs, by tensor.
inline std::map<std::string, std::pair<std::int64_t, std::int64_t>> sm_bytes(const Schedule& s) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> bytes;
  for (const TrafficEntry& e : exact(s).entries) {
    if (!e.boundary.ends_with("/shared") || e.boundary == "cluster/shared") continue;
    bytes[e.tensor].first += e.read.value;
    bytes[e.tensor].second += e.written.value;
  }
  return bytes;
}

inline std::string text(const std::map<std::string, std::pair<std::int64_t, std::int64_t>>& bytes) {
  std::string out;
  for (const auto& [tensor, b] : bytes)
    out += tensor + " " + std::to_string(b.first) + "/" + std::to_string(b.second) + "  ";
  return out;
}

}  // namespace tilewright::testing
