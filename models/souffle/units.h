// Kernels whose loops warps, lanes and threads share out, for what Souffle calls memory-intensive.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/stitching/gpu_time.h"

namespace tilewright::souffle {

struct UnitKernel {
  std::vector<OpId> ops;  ///< ascending
  Kernel kernel;
  double seconds = 0;  ///< predicted (models/stitching/overlap.h)
  std::int64_t blocks = 1;
  /// Of a kernel with barriers of all blocks: operators by phase. Empty: it has one.
  std::vector<std::vector<OpId>> phases = {};
};
inline constexpr std::size_t kMostOperators = 64;  ///< of a kernel of models/stitching

class Units {
 public:
  Units(const Question& q, const Workload& w);
  /// One kernel of these operators; none where one is a product above the machine's ridge, where no
  /// kernel without barriers of all blocks computes them, or where the target refuses it. Cost:
  /// tens of milliseconds, once for parts that differ in names alone.
  std::optional<UnitKernel> kernel(std::vector<OpId> ops);
  /// Phases that follow one another as kernels, two made one where that takes less. Empty where a
  /// phase is none.
  std::vector<UnitKernel> kernels(std::span<const std::vector<OpId>> phases);
  /// One kernel of all phases, with barriers of all blocks between them. `reuse`: what one phase
  /// has loaded is not loaded again. None where a phase has no such kernel. Cost: milliseconds for
  /// each of some dozen choices.
  std::optional<UnitKernel> with_barriers(std::span<const std::vector<OpId>> phases, bool reuse);
  /// Of any kernels of a part, by the same clock; none where it has no price.
  std::optional<double> seconds(const Schedule& s) const;

 private:
  /// A contraction above the machine's ridge.
  bool is_product(OpId id);
  std::optional<UnitKernel> made(const std::shared_ptr<const Workload>& part) const;
  /// Kernels of one phase, the fastest first.
  std::vector<UnitKernel> choices(std::vector<OpId> ops);
  std::optional<UnitKernel> joined(const std::shared_ptr<const Workload>& part,
                                   std::span<const UnitKernel* const> phases, bool reuse) const;

  struct Known {
    std::shared_ptr<const Workload> of;
    std::optional<UnitKernel> kernel;
  };
  struct Choices {
    std::shared_ptr<const Workload> of;
    std::vector<UnitKernel> kernels;
  };
  const Question& q_;
  const Workload& w_;
  std::optional<stitching::Device> device_;
  std::vector<bool> products_;          ///< by operator, when first asked
  std::map<std::string, Known> known_;  ///< by the part without names
  std::map<std::string, Choices> choices_;
};

}  // namespace tilewright::souffle
