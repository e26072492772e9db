// Kernels of drawn workloads for tests: a workload, one kernel's tree or two, a machine of few SMs.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

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

/// A plan, and what it is made of.
struct Case {
  std::shared_ptr<const Workload> workload;
  Schedule schedule;
  std::string text;    ///< for messages
  bool joins = false;  ///< a cluster's blocks share a sum
  /// Whether the mask leaves that row that column out, of a mask of which it can be proven that
  /// what it leaves out adds nothing.
  std::function<bool(std::int64_t, std::int64_t)> out = {};
};

struct CaseOptions {
  std::int64_t l2 = 0;      ///< as h200_of has it
  int cluster = 1;          ///< blocks of the first kernel's clusters
  std::string second = {};  ///< tree of a second kernel
};

inline Case make_case(const std::string& yaml, const std::string& tree, std::int64_t sms,
                      const CaseOptions& how = {}) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(yaml, "drawn"));
  std::vector<Kernel> kernels = {{.name = "one", .tree = parse_tree(tree)}};
  if (how.cluster > 1) kernels.front().launch.cluster = how.cluster;
  if (!how.second.empty()) kernels.push_back({.name = "two", .tree = parse_tree(how.second)});
  auto s = resolve({.kernels = std::move(kernels)}, w, h200_of(sms, how.l2));
  if (!s.ok()) throw std::runtime_error(s.reason() + yaml + tree);
  std::string text = yaml + tree + formatted(" on {} SMs", sms);
  if (how.cluster > 1) text += formatted(" in clusters of {}", how.cluster);
  return {w, std::move(s).value(), std::move(text)};
}

/// Numbers that a seed draws.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}
  std::int64_t number(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }
  bool coin() { return number(0, 1) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[number(0, std::ssize(all) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace tilewright::testing
