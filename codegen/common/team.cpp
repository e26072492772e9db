#include "codegen/common/team.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>

#include "core/base/error.h"

namespace tilewright::codegen {
namespace {

constexpr int kShares = 32;  // the ticket's lower bits, one a share that nobody has taken
constexpr std::uint64_t kLeft = (std::uint64_t{1} << kShares) - 1;

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
/// from running for a whole time slice. To sleep comes late: a virtual machine's processor that
/// rests may take milliseconds to begin again.
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
  static constexpr std::chrono::microseconds kAwake{4000};
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

/// The shares that a thread takes first, a bit each.
std::uint64_t Team::own(int thread) const {
  const auto threads = static_cast<int>(helpers_.size()) + 1;
  const int shares = shares_.load(std::memory_order_relaxed);
  const auto below = [&](int t) { return (std::uint64_t{1} << (shares * t / threads)) - 1; };
  return below(thread + 1) & ~below(thread);
}

/// A share of the call that is open, if one is left: the thread's own, where nobody was quicker.
bool Team::take(int thread, Share& share) {
  std::uint64_t seen = ticket_.load(std::memory_order_acquire);
  while (true) {
    const std::uint64_t left = seen & kLeft;
    if (left == 0) return false;
    const std::uint64_t mine = left & own(thread);
    const int number = mine != 0 ? std::countr_zero(mine) : std::bit_width(left) - 1;
    if (ticket_.compare_exchange_weak(seen, seen & ~(std::uint64_t{1} << number),
                                      std::memory_order_acq_rel)) {
      // The next call waits for this share.
      share = {work_, of_, number * each_, std::min(parts_, (number + 1) * each_)};
      return true;
    }
  }
}

void Team::do_share(const Share& share, int thread) {
  for (int part = share.first; part < share.end; ++part) share.work(share.of, thread, part);
  done_.fetch_add(1, std::memory_order_acq_rel);
}

void Team::run(int parts, Work work, void* of) {
  TW_CHECK(parts >= 0, "a number of parts");
  if (parts <= 1 || helpers_.empty()) {
    for (int part = 0; part < parts; ++part) work(of, 0, part);
    return;
  }
  const std::lock_guard lock(busy_);
  work_ = work, of_ = of, parts_ = parts;
  each_ = (parts + kShares - 1) / kShares;
  const int shares = (parts + each_ - 1) / each_;
  shares_.store(shares, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t number = (ticket_.load(std::memory_order_relaxed) >> kShares) + 1;
  ticket_ = number << kShares | (kLeft >> (kShares - shares));
  call();
  for (Share share; take(0, share);) do_share(share, 0);
  for (Wait wait(spins_); done_.load(std::memory_order_acquire) < shares;) wait.pass();
}

void Team::help(int thread) {
  Wait wait(false);
  while (true) {
    if (Share share; take(thread, share)) {
      do_share(share, thread);
      wait = Wait(spins_);
    } else if (!wait.pass()) {
      const std::uint32_t calls = calls_.load();
      ++asleep_;
      if ((ticket_.load() & kLeft) == 0 && !over_) calls_.wait(calls);
      --asleep_;
      wait = Wait(spins_);
    }
    if (over_) return;
  }
}

std::shared_ptr<Team> team_of(int threads) {
  static std::mutex busy;
  static std::map<int, std::weak_ptr<Team>> teams;
  const std::lock_guard lock(busy);
  std::weak_ptr<Team>& known = teams[threads];
  std::shared_ptr<Team> team = known.lock();
  if (team == nullptr) known = team = std::make_shared<Team>(threads);
  return team;
}

}  // namespace tilewright::codegen
