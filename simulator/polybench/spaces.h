// Where a PolyBench kernel's arrays lie: in plain memory, or before a recorder.
#pragma once

#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "simulator/polybench/polybench.h"
#include "simulator/recorder.h"

namespace tilewright::polybench {

/// Initial values: `mixed` between 0 and 1; `dominant` the same with the extent added on the
/// diagonal, so that factorisations exist; `symmetric` that made symmetric.
enum class Fill : std::uint8_t { mixed, dominant, symmetric, zero };

/// One kernel's arrays, in order of declaration.
class Memory {
 public:
  template <class T>
  T* make(std::initializer_list<std::int64_t> extents, Fill fill, bool values) {
    const std::int64_t n =
        std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    // Zeroed by the system, so that arrays whose values nobody asks for take no time.
    Block block(std::calloc(static_cast<std::size_t>(n), sizeof(T)), &std::free);
    if (!block) throw std::bad_alloc();
    auto* const data = static_cast<T*>(block.get());
    if (values) fill_in(data, n, *(extents.end() - 1), fill);
    readers_.emplace_back([data, n] { return std::vector<double>(data, data + n); });
    blocks_.push_back(std::move(block));
    return data;
  }
  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const auto& read : readers_) all.push_back(read());
    return all;
  }

 private:
  using Block = std::unique_ptr<void, decltype(&std::free)>;
  template <class T>
  static void fill_in(T* data, std::int64_t n, std::int64_t row, Fill fill) {
    if (fill == Fill::zero) return;
    for (std::int64_t e = 0; e < n; ++e) {
      std::int64_t i = e / row, j = e % row;
      if (fill == Fill::symmetric && i < j) std::swap(i, j);
      const std::int64_t mixed = (i * 31 + j * 17 + i * j % 13) % 101 + 1;
      if constexpr (std::is_integral_v<T>)
        data[e] = static_cast<T>(mixed % 4);
      else
        data[e] = static_cast<T>(static_cast<double>(mixed) / 101 +
                                 (fill != Fill::mixed && i == j ? static_cast<double>(row) : 0));
    }
  }
  std::vector<Block> blocks_;
  std::vector<std::function<std::vector<double>()>> readers_;
};

/// A plain row-major array, subscripted as a traced one.
template <class T>
class Array {
 public:
  Array(T* data, std::initializer_list<std::int64_t> extents) : data_(data) {
    auto extent = extents.end();
    plane_ = row_ = *--extent;
    if (extent != extents.begin()) plane_ = row_ * *--extent;
  }
  T& operator()(std::int64_t i) const { return data_[i]; }
  T& operator()(std::int64_t i, std::int64_t j) const { return data_[i * row_ + j]; }
  T& operator()(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return data_[i * plane_ + j * row_ + k];
  }

 private:
  T* data_;
  std::int64_t row_ = 1, plane_ = 1;
};

class Plain {
 public:
  template <class T = double>
  Array<T> array(std::initializer_list<std::int64_t> extents, Fill fill = Fill::mixed) {
    return {memory_.make<T>(extents, fill, true), extents};
  }
  template <class Body>
  void loop(std::int64_t from, std::int64_t to, Body&& body) {
    for (std::int64_t i = from; i < to; ++i) body(i);
  }
  template <class Body>
  void down(std::int64_t from, std::int64_t to, Body&& body) {
    for (std::int64_t i = from; i >= to; --i) body(i);
  }
  const Memory& memory() const { return memory_; }

 private:
  Memory memory_;
};

class Traced {
 public:
  Traced(Recorder& to, std::int64_t base, bool values) : to_(&to), next_(base), values_(values) {}

  template <class T = double>
  traced<T> array(std::initializer_list<std::int64_t> extents, Fill fill = Fill::mixed) {
    constexpr std::int64_t kAlign = 4096;
    const std::int64_t address = next_;
    const std::int64_t bytes = std::accumulate(
        extents.begin(), extents.end(), static_cast<std::int64_t>(sizeof(T)), std::multiplies<>());
    next_ = (address + bytes + kAlign - 1) / kAlign * kAlign;
    return {*to_, memory_.make<T>(extents, fill, values_), address, extents, arrays_++};
  }
  /// An innermost loop, from <= i < to: see Recorder::affine.
  template <class Body>
  void loop(std::int64_t from, std::int64_t to, Body&& body) {
    to_->affine(from, to - from, 1, body);
  }
  /// from >= i >= to.
  template <class Body>
  void down(std::int64_t from, std::int64_t to, Body&& body) {
    to_->affine(from, from - to + 1, -1, body);
  }
  const Memory& memory() const { return memory_; }

 private:
  Recorder* to_;
  std::int64_t next_;
  bool values_;
  int arrays_ = 0;
  Memory memory_;
};

/// A record of a kernel: a type with `template <class Space> static void run(Space&, const
/// Sizes&)`.
template <class K>
constexpr Kernel record(std::string_view name, int arrays, const Sizes& small, const Sizes& medium,
                        const Sizes& large) {
  return {.name = name,
          .sizes = {small, medium, large},
          .arrays = arrays,
          .traced = [](Traced& s, const Sizes& n) { K::run(s, n); },
          .plain = [](Plain& s, const Sizes& n) { K::run(s, n); }};
}

/// The groups that kernels() lists.
std::span<const Kernel> products();
std::span<const Kernel> solvers();
std::span<const Kernel> stencils();

}  // namespace tilewright::polybench
