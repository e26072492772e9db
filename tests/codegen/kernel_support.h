// What the tests of emitted kernels share: arrays for a workload, and the verdict of a run against
// the reference evaluator and against counts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "core/ir/files.h"
#include "core/reference/evaluate.h"

namespace tilewright::testing {

/// Arrays by TensorId: inputs as given, everything else NaN, so that what is read before it is
/// written shows.
template <class Real>
struct Arrays {
  Arrays(const Workload& w, const TensorValues& inputs) {
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      values.emplace_back(static_cast<std::size_t>(w.tensors()[t].elements().value),
                          std::numeric_limits<Real>::quiet_NaN());
      if (w.is_input(TensorId(t)))
        for (std::size_t i = 0; i < values[t].size(); ++i)
          values[t][i] = static_cast<Real>(inputs[t][i]);
    }
  }
  std::vector<void*> pointers() {
    std::vector<void*> p;
    for (auto& v : values) p.push_back(v.data());
    return p;
  }
  std::vector<std::vector<Real>> values;
};

/// Largest relative error over the outputs of the workload.
template <class Real>
double worst_error(const Workload& w, const Arrays<Real>& got, const TensorValues& reference) {
  double worst = 0;
  for (TensorId t : w.outputs())
    worst = std::max(worst, relative_error(std::span<const Real>(got.values[t.index()]),
                                           std::span<const double>(reference[t.index()])));
  return worst;
}

/// "TENSOR BOUNDARY" -> bytes read and written, without those that moved nothing.
using ByteTable = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;
inline ByteTable table(const std::vector<TrafficEntry>& entries) {
  ByteTable t;
  for (const TrafficEntry& e : entries)
    if (e.read.value != 0 || e.written.value != 0)
      t[e.tensor + " " + e.boundary] = {e.read.value, e.written.value};
  return t;
}
inline std::string text(const ByteTable& t) {
  std::string out;
  for (const auto& [key, bytes] : t)
    out += "  " + key + ": read " + std::to_string(bytes.first) + ", written " +
           std::to_string(bytes.second) + "\n";
  return out;
}

inline std::vector<cpu::Isa> isas_here() {
  std::vector<cpu::Isa> isas;
  for (cpu::Isa isa : {cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512})
    if (cpu::host_runs(isa)) isas.push_back(isa);
  return isas;
}

}  // namespace tilewright::testing
