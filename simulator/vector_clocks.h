// Vector clocks: of a CUDA block's threads, of an NPU core's pipes ("threads" here). Each thread has
// two components: its own, and that of its asynchronous copies, which happen after their issue and,
// for anyone, before what has waited for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tilewright {

using Clock = std::uint32_t;
using ClockVector = std::vector<Clock>;

class Clocks {
 public:
  /// All threads at 1, having seen nothing of one another.
  void reset(int threads) {
    threads_ = threads;
    width_ = threads;
    copies_.assign(static_cast<std::size_t>(threads), 0);
    all_.assign(static_cast<std::size_t>(threads) * 2 * static_cast<std::size_t>(threads), 0);
    for (int t = 0; t < threads; ++t) of(t)[t] = 1;
  }
  int threads() const { return threads_; }
  int components() const { return 2 * threads_; }
  Clock* of(int t) {
    return all_.data() + static_cast<std::size_t>(t) * 2 * static_cast<std::size_t>(threads_);
  }
  Clock now(int t) { return of(t)[t]; }
  void tick(int t) { ++of(t)[t]; }
  /// The component of thread t's copies.
  int copier(int t) const { return threads_ + t; }
  int thread_of(int component) const {
    return component < threads_ ? component : component - threads_;
  }
  bool is_copier(int component) const { return component >= threads_; }
  /// Copies issued so far; the next one's clock.
  Clock copies(int t) const { return copies_[static_cast<std::size_t>(t)]; }
  Clock issue_copy(int t) {
    width_ = 2 * threads_;
    return ++copies_[static_cast<std::size_t>(t)];
  }
  void join(Clock* to, const Clock* from) const {
    for (int i = 0; i < width_; ++i) to[i] = std::max(to[i], from[i]);
  }
  /// Everyone in `members` has seen what any of them has; then each goes one on.
  template <class Members>
  void meet(const Members& members) {
    together_.assign(static_cast<std::size_t>(components()), 0);
    for (const int t : members) join(together_.data(), of(t));
    for (const int t : members) {
      std::copy_n(together_.data(), width_, of(t));
      tick(t);
    }
  }

 private:
  int threads_ = 0;
  int width_ = 0;  ///< components in use: the copies' half is all zero until there is one
  std::vector<Clock> copies_;
  ClockVector all_, together_;
};

}  // namespace tilewright
