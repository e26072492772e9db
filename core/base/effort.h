// How much a search may do for whoever asked it: counted work, not time, so that answers do not
// depend on how busy the machine is.
#pragma once

#include <cstdint>
#include <limits>

namespace tilewright {

/// More was searched than whoever asked had allowed.
struct OutOfEffort {};

/// While it lives, what this thread searches may take so many units of work: schedules that are
/// priced, times their operators, and what takes as long. Those of a caller are not counted
/// meanwhile.
class Effort {
 public:
  explicit Effort(std::int64_t units) : before_(left()) { left() = units; }
  ~Effort() { left() = before_; }
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

  /// Throws OutOfEffort where that is more than what is left.
  static void spend(std::int64_t units) {
    left() -= units;
    if (left() < 0) throw OutOfEffort();
  }

  /// What is left: whoever keeps an answer keeps what it took, and spends that where it is found.
  static std::int64_t remaining() { return left(); }

 private:
  static std::int64_t& left() {
    thread_local std::int64_t units = std::numeric_limits<std::int64_t>::max();
    return units;
  }
  std::int64_t before_;
};

}  // namespace tilewright
