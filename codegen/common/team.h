// Threads that live as long as a program of many kernels and share the larger ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewright::codegen {

/// The calling thread and others that help it. Nobody waits for a thread that has not begun: parts
/// are taken by whoever is there, so that a helper without a processor costs what it would have
/// done, not a time slice. A thread takes its own first, those of a stretch of numbers in order:
/// what it reads in every run stays in its own cache. Of others' it takes the last ones. Helpers
/// without work spin for some microseconds, then offer their processor to others between looks,
/// then sleep until they are called.
class Team {
 public:
  using Work = void (*)(void* of, int thread, int part);

  /// `threads`, at least 1, the caller among them. Helpers start asleep.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// work(of, thread, part) for every part of [0, parts), each once and on some thread of
  /// [0, threads), the caller's number being 0. Returns when all have ended; what they wrote is
  /// seen. Work must not throw, nor call this. Calls from several threads wait for one another.
  void run(int parts, Work work, void* of);
  /// Wakes helpers that sleep, because work comes soon.
  void call();

 private:
  /// Parts [first, end) of a call.
  struct Share {
    Work work = nullptr;
    void* of = nullptr;
    int first = 0, end = 0;
  };
  void help(int thread);
  bool take(int thread, Share& share);
  std::uint64_t own(int thread) const;
  void do_share(const Share& share, int thread);

  /// The call's number and which of its shares nobody has taken, in one word: whoever takes one
  /// takes it of the call that it has seen.
  std::atomic<std::uint64_t> ticket_ = 0;
  std::atomic<int> done_ = 0;  ///< shares of the call that have ended
  Work work_ = nullptr;
  void* of_ = nullptr;
  int parts_ = 0, each_ = 1;
  std::atomic<int> shares_ = 0;
  std::atomic<std::uint32_t> calls_ = 0;  ///< changes when sleepers are to look
  std::atomic<int> asleep_ = 0;
  std::atomic<bool> over_ = false;
  bool spins_ = true;  ///< each thread can have a processor
  std::mutex busy_;    ///< while a call lasts
  std::vector<std::thread> helpers_;
};

/// The one of so many threads, as long as somebody has it: programs that run in turn share helpers,
/// so that those of one do not have the processors that another's want.
std::shared_ptr<Team> team_of(int threads);

}  // namespace tilewright::codegen
