#include "core/workload/reference/touched.h"

#include <algorithm>

#include "core/workload/reference/gather.h"

namespace tilewright {

void TouchedSectors::add(OpId id, int input) {
  const Operator& op = w_.op(id);
  const TensorId t = op.inputs[static_cast<std::size_t>(input)].tensor;
  const std::int64_t element = size_of(w_.tensor(t).dtype);
  std::vector<bool>& sectors = touched_[t.index()];
  sectors.resize(static_cast<std::size_t>((w_.tensor(t).bytes().value + sector_ - 1) / sector_));
  const auto touch = [&](std::int64_t first, std::int64_t last) {  // elements
    for (std::int64_t s = first * element / sector_; s <= ((last + 1) * element - 1) / sector_; ++s)
      sectors[static_cast<std::size_t>(s)] = true;
  };
  reference::each_gathered(w_, op, input, indices_, [&](const reference::GatheredRow& row) {
    if (row.stride == 1) return touch(row.base + row.valid.lo, row.base + row.valid.hi - 1);
    for (std::int64_t i = row.valid.lo; i < row.valid.hi; ++i)
      touch(row.base + i * row.stride, row.base + i * row.stride);
  });
}

Bytes TouchedSectors::of(TensorId t) const {
  const auto found = touched_.find(t.index());
  if (found == touched_.end()) return {};
  const std::vector<bool>& sectors = found->second;
  std::int64_t bytes = std::count(sectors.begin(), sectors.end(), true) * sector_;
  if (!sectors.empty() && sectors.back())
    bytes -= static_cast<std::int64_t>(sectors.size()) * sector_ - w_.tensor(t).bytes().value;
  return Bytes(bytes);
}

}  // namespace tilewright
