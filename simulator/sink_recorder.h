// Ordinary code, recorded for any sink (a trace, stack distances): views of arrays that tell it of
// every element read and written. recorder.h is the one for caches, with page walks and long loops.
//
//   CacheHierarchy caches({...}, 3);
//   SinkRecorder<CacheHierarchy> record(caches);
//   auto a = record.array<float>(n, n), b = record.array<float>(n, n), c = ...;
//   for (...) c(i, j) += a(i, k) * b(k, j);   // loads of c, a and b, and a store of c
//
// An expression's loads come in the order in which C++ evaluates it, which for operands of + or *
// is up to the compiler; `x += y` loads y, then x, and stores x.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/ir/error.h"
#include "core/ir/units.h"
#include "simulator/stack_distance.h"

namespace tilewright {

/// How a sink takes one access. CacheHierarchy and TraceWriter have the first form.
template <class Sink>
void record_access(Sink& sink, std::int64_t address, std::int64_t bytes, bool write, int tensor) {
  sink.access(address, bytes, write, tensor);
}
inline void record_access(StackDistances& sink, std::int64_t address, std::int64_t bytes, bool,
                          int tensor) {
  sink.access(address, bytes, tensor);
}

/// An element that is read by conversion and written by assignment.
template <class T, class Sink>
class SinkElement {
 public:
  SinkElement(T& value, Sink& sink, std::int64_t address, int tensor)
      : value_(value), sink_(sink), address_(address), tensor_(tensor) {}
  SinkElement(const SinkElement&) = default;
  operator T() const {  // NOLINT: what makes it stand for the element
    tell(false);
    return value_;
  }
  SinkElement& operator=(T v) {
    tell(true);
    value_ = v;
    return *this;
  }
  SinkElement& operator=(const SinkElement& other) { return *this = static_cast<T>(other); }
  SinkElement& operator+=(T v) { return *this = static_cast<T>(*this) + v; }
  SinkElement& operator-=(T v) { return *this = static_cast<T>(*this) - v; }
  SinkElement& operator*=(T v) { return *this = static_cast<T>(*this) * v; }
  SinkElement& operator/=(T v) { return *this = static_cast<T>(*this) / v; }

 private:
  void tell(bool write) const {
    record_access(sink_, address_, static_cast<std::int64_t>(sizeof(T)), write, tensor_);
  }
  T& value_;
  Sink& sink_;
  std::int64_t address_;
  int tensor_;
};

/// A row-major array of one to three dimensions, with storage of its own. Lives no longer than its
/// sink.
template <class T, class Sink>
class SinkArray {
 public:
  SinkArray(Sink& sink, std::array<std::int64_t, 3> shape, std::int64_t base, int tensor)
      : sink_(&sink),
        shape_(shape),
        base_(base),
        tensor_(tensor),
        data_(static_cast<std::size_t>(shape[0] * shape[1] * shape[2])) {}

  SinkElement<T, Sink> operator()(std::int64_t i) { return at(i); }
  SinkElement<T, Sink> operator()(std::int64_t i, std::int64_t j) {
    return at(i * shape_[1] + j);
  }
  SinkElement<T, Sink> operator()(std::int64_t i, std::int64_t j, std::int64_t k) {
    return at((i * shape_[1] + j) * shape_[2] + k);
  }
  /// The values, told to nobody.
  std::vector<T>& untraced() { return data_; }
  std::int64_t base() const { return base_; }
  int tensor() const { return tensor_; }

 private:
  SinkElement<T, Sink> at(std::int64_t index) {
    return {data_[static_cast<std::size_t>(index)], *sink_,
            base_ + index * static_cast<std::int64_t>(sizeof(T)), tensor_};
  }
  Sink* sink_;
  std::array<std::int64_t, 3> shape_;
  std::int64_t base_;
  int tensor_;
  std::vector<T> data_;
};

/// Gives arrays addresses: one after the other from `arena` on, each from a multiple of
/// `alignment`; tensors are numbered as they are made.
template <class Sink>
class SinkRecorder {
 public:
  explicit SinkRecorder(Sink& sink, std::int64_t arena = 0x10000000, std::int64_t alignment = 4096)
      : sink_(sink), next_(arena), alignment_(alignment) {}

  /// Throws InputError for sizes below 1, and where the arena would not end below 2^52.
  template <class T>
  SinkArray<T, Sink> array(std::int64_t n0, std::int64_t n1 = 1, std::int64_t n2 = 1) {
    const auto plane = n0 > 0 && n1 > 0 && n2 > 0 ? checked_mul(n0, n1) : std::nullopt;
    const auto count = plane ? checked_mul(*plane, n2) : std::nullopt;
    const auto bytes =
        count ? checked_mul(*count, static_cast<std::int64_t>(sizeof(T))) : std::nullopt;
    const std::int64_t base = ceil_div(next_, alignment_) * alignment_;
    if (!bytes || *bytes > (std::int64_t{1} << 52) - base)
      throw InputError(
          {.field = "traced array",
           .value = std::to_string(n0) + " x " + std::to_string(n1) + " x " + std::to_string(n2),
           .problem = "cannot be laid out",
           .accepted = "positive sizes, 2^52 bytes together"});
    // As C lays out a[n0][n1]: the last dimension that is used is contiguous either way.
    next_ = base + *bytes;
    return SinkArray<T, Sink>(sink_, {n0, n1, n2}, base, tensors_++);
  }

 private:
  Sink& sink_;
  std::int64_t next_, alignment_;
  int tensors_ = 0;
};

}  // namespace tilewright
