// AddressMap's templates; included by stream.h.
#pragma once

#include "core/plan/stream.h"

namespace tilewright {

template <class F>
void AddressMap::rows(std::int64_t base, std::int64_t element, const Box& outer, const Box& box,
                      F&& f) {
  if (box.empty()) return;
  const int rank = box.rank();
  // Dimensions [0, split) are walked; the rest, whole but for the first of it, is one run.
  int split = rank;
  std::int64_t run = element;
  while (split > 0) {
    --split;
    run *= box[split].size();
    if (box[split].size() != outer[split].size()) break;
  }
  std::array<std::int64_t, kMaxRank> stride{};  // bytes
  std::int64_t address = base;
  for (std::int64_t d = rank - 1, step = element; d >= 0; --d) {
    const int i = static_cast<int>(d);
    stride[static_cast<std::size_t>(d)] = step;
    address += (box[i].lo - outer[i].lo) * step;
    step *= outer[i].size();
  }
  std::array<std::int64_t, kMaxRank> at{};
  for (;;) {
    f(address, run);
    int d = split - 1;
    for (; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      address += stride[i];
      if (++at[i] < box[d].size()) break;
      address -= box[d].size() * stride[i];
      at[i] = 0;
    }
    if (d < 0) return;
  }
}

template <class F>
void AddressMap::runs(TensorId t, const Box& box, F&& f) const {
  const Box& whole = whole_[t.index()];
  const Box& size = block_[t.index()];
  const std::int64_t base = base_[t.index()];
  if (size.rank() == 0) return rows(base, element(t), whole, box, f);
  if (box.empty()) return;
  const int rank = box.rank();
  Box block(rank);  // the one that the walk is at
  const auto place = [&](int d, std::int64_t lo) {
    block[d] = {lo, std::min(lo + size[d].hi, whole[d].hi)};
  };
  for (int d = 0; d < rank; ++d) place(d, box[d].lo - box[d].lo % size[d].hi);
  for (;;) {
    // What lies before a block: whole slabs of it in each dimension, as high as the block in the
    // dimensions before and as wide as the tensor in those after.
    std::int64_t before = 0, height = 1, width = 1;
    for (int d = 0; d < rank; ++d) width *= whole[d].size();
    for (int d = 0; d < rank; ++d) {
      width /= whole[d].size();
      before += block[d].lo * height * width;
      height *= block[d].size();
    }
    rows(base + before * element(t), element(t), block, intersect(block, box), f);
    int d = rank - 1;
    for (; d >= 0; --d) {
      if (block[d].hi < box[d].hi) {
        place(d, block[d].hi);
        break;
      }
      place(d, box[d].lo - box[d].lo % size[d].hi);
    }
    if (d < 0) return;
  }
}

template <class F>
void AddressMap::packed_runs(int kernel, BufferId b, const Box& tile, const Box& box, F&& f) const {
  const Array& array = arrays_[static_cast<std::size_t>(kernel)][b.index()];
  rows(array.base, array.element, tile, box, f);
}

inline BufferId AddressMap::array_of(int kernel, BufferId b) const {
  return b.valid() ? arrays_[static_cast<std::size_t>(kernel)][b.index()].buffer : BufferId();
}

}  // namespace tilewright
