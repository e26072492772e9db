#include "codegen/common/team.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "core/base/error.h"

namespace tilewright::codegen {
namespace {

constexpr int kPartBits = 16;
constexpr std::uint64_t kPartMask = (std::uint64_t{1} << kPartBits) - 1;

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Between two looks at what others change: short at first, then the processor goes to whoever
/// wants it. A thread that spun on, with the one that it waits for queued behind it, would keep it
/// from running for a whole time slice.
class Wait {
 public:
  explicit Wait(bool spins) : looks_(spins ? 0 : kSpins) {}
  /// False once it has lasted long enough to sleep.
  bool pass() {
    if (looks_ < kSpins) {
      ++looks_;
      pause();
      return true;
    }
    if (looks_ == kSpins) since_ = Clock::now();
    ++looks_;
    sched_yield();
    return Clock::now() - since_ < kAwake;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpins = 500;  // some ten microseconds
  static constexpr std::chrono::microseconds kAwake{200};
  int looks_;
  Clock::time_point since_;
};

}  // namespace

Team::Team(int threads) : spins_(threads <= processors()) {
  for (int t = 1; t < threads; ++t) helpers_.emplace_back([this, t] { help(t); });
}

Team::~Team() {
  over_ = true;
  ++calls_;
  calls_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::call() {
  if (asleep_.load() == 0) return;
  ++calls_;
  calls_.notify_all();
}

/// A part of the call that is open, if one is left.
bool Team::take(Work& work, void*& of, int& part) {
  std::uint64_t seen = ticket_.load(std::memory_order_acquire);
  while (true) {
    const std::uint64_t next = seen >> kPartBits & kPartMask, parts = seen & kPartMask;
    if (next >= parts) return false;
    if (ticket_.compare_exchange_weak(seen, seen + (kPartMask + 1), std::memory_order_acq_rel)) {
      part = static_cast<int>(next);
      work = work_, of = of_;  // the next call waits for this part
      return true;
    }
  }
}

void Team::run(int parts, Work work, void* of) {
  TW_CHECK(parts >= 0 && static_cast<std::uint64_t>(parts) < kPartMask, "too many parts");
  if (parts <= 1 || helpers_.empty()) {
    for (int part = 0; part < parts; ++part) work(of, 0, part);
    return;
  }
  work_ = work, of_ = of;
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 2 * kPartBits) + 1;
  ticket_ = number << 2 * kPartBits | static_cast<std::uint64_t>(parts);
  call();
  int part = 0;
  while (take(work, of, part)) {
    work(of, 0, part);
    done_.fetch_add(1, std::memory_order_acq_rel);
  }
  for (Wait wait(spins_); done_.load(std::memory_order_acquire) < parts;) wait.pass();
}

void Team::help(int thread) {
  Wait wait(false);
  while (true) {
    Work work = nullptr;
    void* of = nullptr;
    int part = 0;
    if (take(work, of, part)) {
      work(of, thread, part);
      done_.fetch_add(1, std::memory_order_acq_rel);
      wait = Wait(spins_);
    } else if (!wait.pass()) {
      const std::uint32_t calls = calls_.load();
      ++asleep_;
      const std::uint64_t seen = ticket_.load();
      if ((seen >> kPartBits & kPartMask) >= (seen & kPartMask) && !over_) calls_.wait(calls);
      --asleep_;
      wait = Wait(spins_);
    }
    if (over_) return;
  }
}

}  // namespace tilewright::codegen
