// How much of a tensor operators read.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// What an index offset + sum of coefficient * i reads of [0, size), each i from 0 to its extent -
/// 1: intervals, ascending and apart, where at most 8 of them are needed; else the one around all.
std::vector<Interval> intervals_read(std::int64_t offset,
                                     std::vector<std::pair<std::int64_t, std::int64_t>> terms,
                                     std::int64_t size);

/// What an operator reads of a tensor, each byte once: the footprint of its whole loops, less the
/// gaps between a few far slices (a channel shuffle's); of a gather, as many rows as lookups find
/// on average where every row is as likely as any other, and at most an element a point of the
/// loops that its indices name.
Bytes bytes_read(const Workload& w, const Operator& op, const Access& a);
/// What these operators read of it together, each byte once: slices count each, reads of the same
/// elements once; of several gathers the one that reads most.
Bytes bytes_read(const Workload& w, TensorId t, std::span<const OpId> ops);

}  // namespace tilewright
