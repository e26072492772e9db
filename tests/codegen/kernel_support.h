// What the tests of emitted kernels share: arrays for a workload, and the verdict of a run against
// the reference evaluator and against counts.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cpu/cpu.h"
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"

namespace tilewright::testing {

/// Memory that ends where a page ends that nobody may touch.
template <class Real>
class Guarded {
 public:
  explicit Guarded(std::size_t count) : count_(count) {
    const std::size_t bytes = std::max<std::size_t>(1, count * sizeof(Real));
    whole_ = (bytes + kPage - 1) / kPage * kPage + kPage;
    void* const memory =
        mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    if (mprotect(memory_ + whole_ - kPage, kPage, PROT_NONE) != 0) throw std::bad_alloc();
  }
  ~Guarded() {
    if (memory_ != nullptr) munmap(memory_, whole_);
  }
  Guarded(Guarded&& o) noexcept
      : count_(o.count_), whole_(o.whole_), memory_(std::exchange(o.memory_, nullptr)) {}
  Guarded& operator=(Guarded&&) = delete;
  std::span<Real> values() const {
    char* const end = memory_ + whole_ - kPage;
    return {reinterpret_cast<Real*>(end - count_ * sizeof(Real)), count_};
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t count_, whole_ = 0;
  char* memory_ = nullptr;
};

/// Arrays by TensorId: inputs as given, everything else NaN, so that what is read before it is
/// written shows; a read or write past an array's end is a fault.
template <class Real>
struct Arrays {
  Arrays(const Workload& w, const TensorValues& inputs) {
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      arrays.emplace_back(static_cast<std::size_t>(w.tensors()[t].elements().value));
      const Tensor& tensor = w.tensors()[t];
      if (tensor.dtype == DType::i8 || tensor.dtype == DType::i32) {
        Guarded<char>& bytes =
            integers.emplace(t, static_cast<std::size_t>(tensor.bytes().value)).first->second;
        encode_elements(tensor.dtype, inputs[t], bytes.values().data());
        continue;
      }
      const std::span<Real> values = arrays[t].values();
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = w.is_input(TensorId(t)) ? static_cast<Real>(inputs[t][i])
                                            : std::numeric_limits<Real>::quiet_NaN();
    }
  }
  std::vector<void*> pointers() {
    std::vector<void*> p;
    for (std::size_t t = 0; t < arrays.size(); ++t) {
      const auto found = integers.find(t);
      p.push_back(found == integers.end() ? static_cast<void*>(arrays[t].values().data())
                                          : found->second.values().data());
    }
    return p;
  }
  std::vector<Guarded<Real>> arrays;
  std::map<std::size_t, Guarded<char>> integers;  ///< inputs, by TensorId, as they are stored
};

/// The machine with every software-managed level a cache, fully associative: kernels for it use
/// tiles where they lie.
inline std::shared_ptr<const Machine> cached(const Machine& m) {
  Machine twin = m;
  for (Level& l : twin.levels)
    if (l.kind == LevelKind::scratchpad) {
      l.kind = LevelKind::cache;
      l.managed = Managed::hardware;
    }
  return std::make_shared<const Machine>(std::move(twin));
}

/// Largest relative error over the outputs of the workload.
template <class Real>
double worst_error(const Workload& w, const Arrays<Real>& got, const TensorValues& reference) {
  double worst = 0;
  for (TensorId t : w.outputs())
    worst = std::max(worst, relative_error(std::span<const Real>(got.arrays[t.index()].values()),
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
