// What emitted kernels are made of, before anything is in memory: ranges and boxes of indices, and what a
// buffer holds of a tensor. Plain C++ on top of tilewright_device.h.
#pragma once

#include "tilewright_device.h"

#if defined(__CUDACC__)
#define TW_MEMBER __device__ __forceinline__
#define TW_PRAGMA(TEXT) _Pragma(#TEXT)
#define TW_UNROLL_BY(N) TW_PRAGMA(unroll N)
#else
#define TW_MEMBER inline
#define TW_UNROLL_BY(N)
#endif

namespace tw {

struct Range { int lo, hi; };
TW_DEVICE int least(int a, int b) { return a < b ? a : b; }
TW_DEVICE int most(int a, int b) { return a > b ? a : b; }
TW_DEVICE bool empty(Range r) { return r.hi <= r.lo; }
TW_DEVICE bool equal(Range a, Range b) { return a.lo == b.lo && a.hi == b.hi; }
TW_DEVICE Range hull(Range a, Range b) {
  return empty(a) ? b : empty(b) ? a : Range{least(a.lo, b.lo), most(a.hi, b.hi)};
}
TW_DEVICE Range clip(Range r, int extent) { return {most(r.lo, 0), least(r.hi, extent)}; }
/// Where offset + coefficient * range + ... lies; empty where one of the ranges is.
TW_DEVICE Range reach(int offset) { return {offset, offset + 1}; }
template <class... Rest>
TW_DEVICE Range reach(int offset, int coefficient, Range r, Rest... rest) {
  const Range other = reach(offset, rest...);
  if (empty(r) || empty(other)) return {offset, offset};
  const int first = coefficient * r.lo, last = coefficient * (r.hi - 1);
  return {other.lo + least(first, last), other.hi + most(first, last)};
}
/// Of a tensor, one range a dimension; R = 0 is a scalar.
template <int R>
struct Box { Range d[R > 0 ? R : 1]; };
template <int R>
TW_DEVICE bool equal(const Box<R>& a, const Box<R>& b) {
  bool same = true;
  TW_UNROLL
  for (int i = 0; i < R; ++i) same = same && equal(a.d[i], b.d[i]);
  return same;
}
template <int R>
TW_DEVICE bool empty(const Box<R>& b) {
  bool none = false;
  TW_UNROLL
  for (int i = 0; i < R; ++i) none = none || empty(b.d[i]);
  return none;
}
template <int R>
TW_DEVICE bool within(const Box<R>& a, const Box<R>& b) {
  bool in = true;
  TW_UNROLL
  for (int i = 0; i < R; ++i) in = in && b.d[i].lo <= a.d[i].lo && a.d[i].hi <= b.d[i].hi;
  return in;
}
template <int R>
TW_DEVICE Box<R> hull(const Box<R>& a, const Box<R>& b) {
  if (empty(a)) return b;
  if (empty(b)) return a;
  Box<R> r{};
  TW_UNROLL
  for (int i = 0; i < R; ++i) r.d[i] = hull(a.d[i], b.d[i]);
  return r;
}

/// What a buffer holds (rule 4) and whether it has changed since it was filled. The same in every
/// thread.
template <int R>
struct Held {
  Box<R> box{};
  bool full = false, changed = false;
  bool fresh = false;  // an output at several levels: it began as sums do, with nothing read
  TW_MEMBER bool is(const Box<R>& b) const { return full && equal(box, b); }
  TW_MEMBER void now(const Box<R>& b) { box = b, full = true, changed = false; }
};

/// Boxes that a !once compute has finished in a tile that has not been replaced since (rule 13), at
/// most `Most` of them. The same in every thread, of which each keeps its own.
template <int R, int Most>
struct Finished {
  Box<R> tile{}, boxes[Most];
  int count = -1;  // -1: no tile yet
  TW_MEMBER void in(const Box<R>& now) {
    if (count >= 0 && equal(tile, now)) return;
    tile = now;
    count = 0;
  }
  TW_MEMBER bool has(const Box<R>& box) const {
    for (int i = 0; i < count; ++i)
      if (equal(boxes[i], box)) return true;
    return false;
  }
  TW_MEMBER void add(const Box<R>& box) {
    if (!has(box) && count < Most) boxes[count++] = box;
  }
};

/// What of `now` is not held where the two differ in one dimension only, and that is one range; all of
/// it where nothing can be kept (rule 8).
template <int R>
TW_DEVICE Box<R> needed(const Held<R>& h, const Box<R>& now) {
  if (!h.full || R == 0 || empty(h.box) || empty(now)) return now;
  int differs = 0, differences = 0;
  bool held = true;
  for (int i = 0; i < R; ++i) {
    held = held && h.box.d[i].lo <= now.d[i].lo && now.d[i].hi <= h.box.d[i].hi;
    if (equal(h.box.d[i], now.d[i])) continue;
    differs = i;
    ++differences;
  }
  Box<R> part = now;
  const Range before = h.box.d[differs], after = now.d[differs];
  if (held)
    part.d[differs] = {after.lo, after.lo};
  else if (differences == 1 && most(before.lo, after.lo) < least(before.hi, after.hi) &&
           !(after.lo < before.lo && after.hi > before.hi))
    part.d[differs] = after.lo < before.lo ? Range{after.lo, before.lo} : Range{before.hi, after.hi};
  return part;
}

}  // namespace tw
