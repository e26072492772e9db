// Kernels of two products with operators between them, for tests: a workload, one kernel's tree, a
// machine of few SMs.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "core/plan/schedule.h"

namespace tilewright::testing {

/// An H200 of so many SMs: with few of them a block has several tiles. `l2`: bytes of it, if any;
/// of few tiles of all products do not come together.
inline std::shared_ptr<const Machine> h200_of(std::int64_t sms, std::int64_t l2 = 0) {
  Machine m = named_machine("h200");
  for (Level& level : m.levels)
    if (l2 > 0 && level.kind == LevelKind::cache) level.capacity.value = l2;
  m.units.front().count = sms;
  return std::make_shared<const Machine>(std::move(m));
}

/// A kernel of two products, and what it is made of.
struct Case {
  std::shared_ptr<const Workload> workload;
  Schedule schedule;
  std::string text;  ///< for messages
  /// Whether the mask leaves that row that column out, of a mask of which it can be proven that
  /// what it leaves out adds nothing.
  std::function<bool(std::int64_t, std::int64_t)> out = {};
};

inline Case make_case(const std::string& yaml, const std::string& tree, std::int64_t sms,
                      std::int64_t l2 = 0, int cluster = 1) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(yaml, "drawn"));
  Kernel kernel{.name = "one"};
  kernel.tree = parse_tree(tree);
  if (cluster > 1) kernel.launch.cluster = cluster;
  auto s = resolve({.kernels = {std::move(kernel)}}, w, h200_of(sms, l2));
  if (!s.ok()) throw std::runtime_error(s.reason() + yaml + tree);
  return {w, std::move(s).value(), yaml + tree + formatted(" on {} SMs", sms)};
}

}  // namespace tilewright::testing
