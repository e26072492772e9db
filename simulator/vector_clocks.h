// Vector clocks: of a CUDA block's threads, of an NPU core's pipes ("threads" here). Each thread
// has two components: its own, and that of its asynchronous copies, which happen after their issue
// and, for anyone, before what has waited for them.
//
// Threads that have met have seen the same: they share one vector, and each has beside it the few
// components of which it has seen more. A barrier of n threads that met before costs O(n), not
// O(n * components).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tilewright {

using Clock = std::uint32_t;
using ClockVector = std::vector<Clock>;

/// What a thread has seen, until it or one it shares with goes on.
class Seen {
 public:
  Seen() = default;
  Clock operator[](std::size_t component) const {
    const int c = static_cast<int>(component);
    if (c == own_) return now_;
    if (c == copier_) return landed_;
    if (c == other_) return other_at_;
    return shared_[component];
  }
  /// Of every component a clock that was seen, perhaps not the latest.
  const Clock* at_least() const { return shared_; }

 private:
  friend class Clocks;
  Seen(const Clock* shared, int own, Clock now, int copier, Clock landed, int other, Clock other_at)
      : shared_(shared),
        own_(own),
        copier_(copier),
        other_(other),
        now_(now),
        landed_(landed),
        other_at_(other_at) {}
  const Clock* shared_ = nullptr;
  int own_ = -1, copier_ = -1, other_ = -1;
  Clock now_ = 0, landed_ = 0, other_at_ = 0;
};

/// What others have seen who said so: an mbarrier's phase, an event.
struct Published {
  ClockVector at;
  /// Of the contents of shared vectors: which was added last, and which these are. 0: none.
  std::uint64_t added = 0, stamp = 0;
};

class Clocks {
 public:
  /// All threads at 1, having seen nothing of one another.
  void reset(int threads) {
    threads_ = width_ = threads;
    shared_.clear();
    free_.clear();
    shared_.push_back({.at = ClockVector(static_cast<std::size_t>(components()), 0),
                       .users = threads,
                       .stamp = ++stamp_});
    all_.assign(static_cast<std::size_t>(threads), Thread{});
    last_ = {};
  }
  int threads() const { return threads_; }
  int components() const { return 2 * threads_; }
  Seen seen(int t) const {
    const Thread& a = of(t);
    return {vector_of(a).at.data(), t, a.now, copier(t), a.landed, a.other, a.other_at};
  }
  Clock now(int t) const { return of(t).now; }
  void tick(int t) { ++of(t).now; }
  /// The component of thread t's copies.
  int copier(int t) const { return threads_ + t; }
  int thread_of(int component) const {
    return component < threads_ ? component : component - threads_;
  }
  bool is_copier(int component) const { return component >= threads_; }
  /// Copies issued so far; the next one's clock.
  Clock copies(int t) const { return of(t).issued; }
  Clock issue_copy(int t) {
    width_ = components();
    return ++of(t).issued;
  }
  /// Thread t has seen the copies of thread `whose` up to `upto`.
  void see_copies(int t, int whose, Clock upto) {
    Thread& a = of(t);
    const int component = copier(whose);
    if (whose == t) {
      a.landed = std::max(a.landed, upto);
      return;
    }
    if (upto <= seen(t)[static_cast<std::size_t>(component)]) return;
    if (a.other >= 0 && a.other != component)
      own_vector(a)[static_cast<std::size_t>(a.other)] = a.other_at;
    a.other = component;
    a.other_at = upto;
  }
  /// Thread t has seen what `from` says.
  void join(int t, const Published& from) {
    Thread& a = of(t);
    const std::uint64_t before = vector_of(a).stamp;
    if (from.stamp != 0 && last_.before == before && last_.from == from.stamp &&
        vector_at(last_.to).stamp == last_.after) {
      move_to(a, last_.to);
    } else {
      join(own_vector(a), from.at.data());
      last_ = {before, from.stamp, a.shared, vector_of(a).stamp};
    }
    catch_up(t);
  }
  /// As above, of `threads()` clocks at least; their copies only where any has issued one.
  void join(int t, const Clock* from) {
    join(own_vector(of(t)), from);
    catch_up(t);
  }
  /// What thread t has seen is published.
  void publish(int t, Published& to) const {
    const Thread& a = of(t);
    const Vector& v = vector_of(a);
    if (to.added != v.stamp) join(to.at, v.at.data());
    to.added = v.stamp;
    add_own(a, t, to.at);
  }
  /// Contents of their own for `p`: threads that join it after one another may share the result.
  void seal(Published& p) { p.stamp = ++stamp_; }

  /// Everyone in `members` has seen what any of them has; then each goes one on.
  template <class Members>
  void meet(const Members& members) {
    int to = -1, users = 0;
    together_.clear();
    ++meeting_;
    for (const int t : members) {
      ++users;
      const int s = of(t).shared;
      if (std::exchange(vector_at(s).met, meeting_) != meeting_) together_.push_back(s);
    }
    if (users == 0) return;
    if (together_.size() == 1 && vector_at(together_.front()).users == users) {
      to = together_.front();
    } else {
      to = fresh(together_.front());
      for (std::size_t i = 1; i < together_.size(); ++i)
        join(vector_at(to).at, vector_at(together_[i]).at.data());
    }
    ClockVector& all = vector_at(to).at;
    for (const int t : members) add_own(of(t), t, all);
    for (const int t : members) {
      Thread& a = of(t);
      move_to(a, to);
      a.other = -1;
      a.landed = all[static_cast<std::size_t>(copier(t))];
      ++a.now;
    }
    vector_at(to).stamp = ++stamp_;
  }

 private:
  struct Vector {
    ClockVector at;
    int users = 0;
    std::uint64_t stamp = 0;  ///< another one whenever the contents change; 0: in free_
    std::uint64_t met = 0;    ///< the last meeting
  };
  struct Thread {
    int shared = 0;  ///< index in shared_
    int other = -1;  ///< a component of which it has seen more than its vector says, beside its own
    Clock now = 1, landed = 0, issued = 0, other_at = 0;
  };
  struct Joined {
    std::uint64_t before = 0, from = 0;
    int to = 0;
    std::uint64_t after = 0;
  };

  const Thread& of(int t) const { return all_[static_cast<std::size_t>(t)]; }
  Thread& of(int t) { return all_[static_cast<std::size_t>(t)]; }
  const Vector& vector_at(int i) const { return shared_[static_cast<std::size_t>(i)]; }
  Vector& vector_at(int i) { return shared_[static_cast<std::size_t>(i)]; }
  const Vector& vector_of(const Thread& a) const { return vector_at(a.shared); }

  void join(ClockVector& to, const Clock* from) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(width_); ++i)
      to[i] = std::max(to[i], from[i]);
  }
  void add_own(const Thread& a, int t, ClockVector& to) const {
    const auto raise = [&](int component, Clock at) {
      Clock& c = to[static_cast<std::size_t>(component)];
      c = std::max(c, at);
    };
    raise(t, a.now);
    raise(copier(t), a.landed);
    if (a.other >= 0) raise(a.other, a.other_at);
  }
  /// After its vector has changed.
  void catch_up(int t) {
    Thread& a = of(t);
    const ClockVector& v = vector_of(a).at;
    a.now = std::max(a.now, v[static_cast<std::size_t>(t)]);
    a.landed = std::max(a.landed, v[static_cast<std::size_t>(copier(t))]);
    if (a.other >= 0) a.other_at = std::max(a.other_at, v[static_cast<std::size_t>(a.other)]);
  }
  void move_to(Thread& a, int to) {
    if (a.shared == to) return;
    ++vector_at(to).users;
    Vector& left = vector_at(a.shared);
    if (--left.users == 0) {
      left.stamp = 0;
      free_.push_back(a.shared);
    }
    a.shared = to;
  }
  /// A copy that nobody uses yet.
  int fresh(int copied) {
    int i = static_cast<int>(shared_.size());
    if (free_.empty()) {
      shared_.push_back({.at = ClockVector(static_cast<std::size_t>(components()), 0)});
    } else {
      i = free_.back();
      free_.pop_back();
    }
    std::copy_n(vector_at(copied).at.begin(), width_, vector_at(i).at.begin());
    return i;
  }
  /// Its vector, for it alone, to be changed.
  ClockVector& own_vector(Thread& a) {
    if (vector_of(a).users > 1) move_to(a, fresh(a.shared));
    Vector& v = vector_at(a.shared);
    v.stamp = ++stamp_;
    return v.at;
  }

  int threads_ = 0;
  int width_ = 0;  ///< components in use: the copies' half is all zero until there is one
  std::vector<Thread> all_;
  std::vector<Vector> shared_;
  std::vector<int> free_, together_;
  std::uint64_t stamp_ = 0, meeting_ = 0;
  Joined last_;  ///< the last join, for those who join the same
};

}  // namespace tilewright
