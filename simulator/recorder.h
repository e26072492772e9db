// A recorder for ordinary code: arrays whose element reads and writes go to simulated caches, or into a
// trace, or to stack distances.
//
//   CacheHierarchy caches({{.name = "L1", .capacity = Bytes(32 << 10), .ways = 8}}, 3);
//   Recorder recorder(caches);
//   traced<const double> A(recorder, a.data(), 0x1000'0000, {n, n}, 0);
//   traced<const double> x(recorder, b.data(), 0x1010'0000, {n}, 1);
//   traced<double> y(recorder, c.data(), 0x1020'0000, {n}, 2);
//   for (std::int64_t i = 0; i < n; ++i) {
//     double sum = 0;  // scalars are registers: they are not recorded
//     for (std::int64_t j = 0; j < n; ++j) sum += A(i, j) * x(j);
//     y(i) = sum;
//   }
//   caches.total(0).misses
//
// Where no data are there already, the recorder gives arrays storage and addresses:
//
//   TraceWriter trace(file, {"a", "b", "c"});
//   Recorder recorder(trace);
//   auto a = recorder.array<float>({n, n}), b = recorder.array<float>({n, n}), c = ...;
//   for (...) c(i, j) += a(i, k) * b(k, j);   // loads of c, a and b, and a store of c
//
// An expression's loads come in the order in which C++ evaluates it, which for operands of + or *
// is up to the compiler; `x += y` loads y, then x, and stores x.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "simulator/cache.h"
#include "simulator/page_walks.h"
#include "simulator/stack_distance.h"
#include "simulator/trace.h"

namespace tilewright {

struct RecorderOptions {
  /// Runs only three iterations of each affine() loop, and takes the addresses of the others to lie
  /// on the lines through theirs. Counts and caches are the same as without; the arrays' values are
  /// not computed, so that nothing recorded may depend on them.
  bool addresses_only = false;
  std::optional<PageWalkOptions> walks = {};  ///< none: translation costs nothing
};

template <class T>
class StoredArray;

/// Where the accesses of traced arrays go, in the order in which the program makes them: a
/// hierarchy's caches, and before them translation buffers where there are any; or a trace; or
/// stack distances. Neither these nor the recorder is safe for several threads.
/// Cost: that of an access of where it goes; translation adds PageWalks'.
class Recorder {
 public:
  /// `caches` must outlive it. Throws InputError for wrong translation buffers.
  explicit Recorder(CacheHierarchy& caches, const RecorderOptions& options = {});
  /// The same for the others, before which nothing is translated.
  explicit Recorder(TraceWriter& trace);
  explicit Recorder(StackDistances& distances);

  void touch(std::int64_t address, std::int64_t bytes, bool write, int tensor) {
    if (capturing_) {
      captured_.push_back({.address = address, .bytes = bytes, .write = write, .tensor = tensor});
      return;
    }
    ++accesses_;
    if (caches_ == nullptr) return elsewhere(address, bytes, write, tensor);
    if (walks_) walks_->touch(*caches_, address);
    caches_->access(address, bytes, write, tensor);
  }

  /// An array with storage of its own (zeros), at the next multiple of 4096 from 256 MiB on; tensors
  /// are numbered as they are made. `extents`: one to three, outermost first. Throws InputError for
  /// sizes below 1, and where the addresses would not end below 2^52.
  template <class T>
  StoredArray<T> array(std::initializer_list<std::int64_t> extents);

  /// The loop `for (i = first; i != first + count * step; i += step) body(i)`, whose body makes
  /// the same accesses in every iteration, at addresses that grow by constants (an innermost loop
  /// over arrays with affine subscripts and no branches). Records the same with addresses_only and
  /// without. Cost with it: where an iteration only repeats lines, nothing for it.
  template <class Body>
  void affine(std::int64_t first, std::int64_t count, std::int64_t step, Body&& body) {
    if (!addresses_only_ || count < kFewest || capturing_) {
      for (std::int64_t n = 0; n < count; ++n) body(first + n * step);
      return;
    }
    captured_.clear();
    capturing_ = true;
    body(first);
    body(first + step);
    body(first + (count - 1) * step);
    capturing_ = false;
    replay(count);
  }

  /// Of a recorder before caches.
  CacheHierarchy& caches() const {
    TW_CHECK(caches_ != nullptr, "a recorder that is before no caches");
    return *caches_;
  }
  /// How many tensors are told apart where the accesses go.
  int tensors() const;
  /// Element reads and writes so far; page walks not counted.
  std::int64_t accesses() const { return accesses_; }
  /// Null without translation buffers.
  const PageWalks* walks() const { return walks_ ? &*walks_ : nullptr; }

 private:
  static constexpr std::int64_t kFewest = 5;
  void elsewhere(std::int64_t address, std::int64_t bytes, bool write, int tensor);
  std::int64_t place(std::initializer_list<std::int64_t> extents, std::int64_t element);
  void replay(std::int64_t count);
  bool iterate(std::span<const Stream> streams, std::int64_t i);
  void replay_translated(std::span<Stream> streams, std::int64_t count);

  // One of them.
  CacheHierarchy* caches_ = nullptr;
  TraceWriter* trace_ = nullptr;
  StackDistances* distances_ = nullptr;
  bool addresses_only_ = false;
  bool capturing_ = false;
  std::int64_t accesses_ = 0;
  std::optional<PageWalks> walks_;
  std::vector<Stream> captured_;
  std::int64_t next_ = 0x1000'0000;  // where the next array may begin
  int arrays_ = 0;
};

/// An array of one to three dimensions, row-major, at a stated address; a(i), a(i, j), a(i, j, k)
/// read as a T and are assigned as one: `a(i, j) += x` is one read and one write of sizeof(T)
/// bytes. Copies are views of the same array. Subscripts are not checked. The data lie where `data`
/// says; the address is what the caches see, and need not be the same.
template <class T>
class traced {
 public:
  using value_type = std::remove_const_t<T>;

  class reference {
   public:
    // NOLINTNEXTLINE(google-explicit-constructor): stands for a T&
    operator value_type() const {
      to_->touch(address_, sizeof(T), false, tensor_);
      return *data_;
    }
    const reference& operator=(value_type value) const {
      to_->touch(address_, sizeof(T), true, tensor_);
      *data_ = value;
      return *this;
    }
    const reference& operator=(const reference& other) const {
      return *this = static_cast<value_type>(other);
    }
    const reference& operator+=(value_type x) const { return *this = value_type(*this) + x; }
    const reference& operator-=(value_type x) const { return *this = value_type(*this) - x; }
    const reference& operator*=(value_type x) const { return *this = value_type(*this) * x; }
    const reference& operator/=(value_type x) const { return *this = value_type(*this) / x; }

   private:
    friend class traced;
    reference(Recorder* to, T* data, std::int64_t address, int tensor)
        : to_(to), data_(data), address_(address), tensor_(tensor) {}
    Recorder* to_;
    T* data_;
    std::int64_t address_;
    int tensor_;
  };

  /// `extents`: one to three, outermost first. `tensor`: below the hierarchy's tensors.
  traced(Recorder& to, T* data, std::int64_t address, std::initializer_list<std::int64_t> extents,
         int tensor = 0)
      : to_(&to), data_(data), address_(address), tensor_(tensor) {
    TW_CHECK(extents.size() >= 1 && extents.size() <= 3, "one to three dimensions");
    TW_CHECK(tensor >= 0 && tensor < to.tensors(), "a tensor that the recorder does not know");
    auto extent = extents.end();
    plane_ = row_ = *--extent;
    if (extent != extents.begin()) plane_ = row_ * *--extent;
  }

  reference operator()(std::int64_t i) const { return at(i); }
  reference operator()(std::int64_t i, std::int64_t j) const { return at(i * row_ + j); }
  reference operator()(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return at(i * plane_ + j * row_ + k);
  }

 private:
  reference at(std::int64_t n) const {
    return {to_, data_ + n, address_ + n * static_cast<std::int64_t>(sizeof(T)), tensor_};
  }
  Recorder* to_;
  T* data_;
  std::int64_t address_;
  std::int64_t row_ = 1, plane_ = 1;  // elements between rows, between planes
  int tensor_;
};

/// A traced array and its storage, which copies share.
template <class T>
class StoredArray : public traced<T> {
 public:
  /// The values, told to nobody.
  std::vector<T>& untraced() const { return *data_; }
  std::int64_t base() const { return base_; }

 private:
  friend class Recorder;
  StoredArray(Recorder& to, std::shared_ptr<std::vector<T>> data, std::int64_t base,
              std::initializer_list<std::int64_t> extents, int tensor)
      : traced<T>(to, data->data(), base, extents, tensor), data_(std::move(data)), base_(base) {}
  std::shared_ptr<std::vector<T>> data_;
  std::int64_t base_;
};

template <class T>
StoredArray<T> Recorder::array(std::initializer_list<std::int64_t> extents) {
  const std::int64_t base = place(extents, sizeof(T));
  const auto count = static_cast<std::size_t>((next_ - base) / static_cast<std::int64_t>(sizeof(T)));
  return {*this, std::make_shared<std::vector<T>>(count), base, extents, arrays_++};
}

}  // namespace tilewright
