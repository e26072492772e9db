// Shared by the files that check workloads; nobody else includes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/workload/workload.h"

namespace tilewright::check_workload {

[[noreturn]] inline void fail(std::string field, std::string value, std::string problem,
                       std::string accepted = "") {
  throw InputError(InputError::Parts{.field = std::move(field),
                         .value = std::move(value),
                         .problem = std::move(problem),
                         .accepted = std::move(accepted)});
}

/// Product of positive numbers, or nothing past 2^63 - 1.
template <class Range, class Of>
std::optional<std::int64_t> checked_product(const Range& items, Of of) {
  std::int64_t n = 1;
  for (const auto& item : items) {
    const auto next = checked_mul(n, of(item));
    if (!next) return std::nullopt;
    n = *next;
  }
  return n;
}

/// Brings one operator into the form that its text has (loops and inputs in order of first
/// appearance) and checks everything that concerns it alone. Tensors and loops of `spec` have
/// positive extents and sizes within 64 bits. Throws InputError.
void check_operator(const WorkloadSpec& spec, Operator& op);

}  // namespace tilewright::check_workload
