#include "codegen/common/host_sequence.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "codegen/common/host_memory.h"
#include "codegen/common/shared_launches.h"
#include "codegen/common/team.h"
#include "core/base/units.h"

namespace tilewright::codegen {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::int64_t kPage = 4096;

class HostSequence final : public LaunchSequence {
 public:
  Result<void*> take(std::int64_t bytes) override {
    const auto size = static_cast<std::size_t>(bytes);
    std::shared_ptr<void> memory = host_memory(size);
    if (memory == nullptr) return Reason{"there is not so much memory"};
    std::memset(memory.get(), 0xff, size);
    owned_.push_back(std::move(memory));
    return owned_.back().get();
  }
  std::optional<Reason> write(void* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return std::nullopt;
  }
  std::optional<Reason> read(void* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return std::nullopt;
  }
  std::optional<Reason> add(TargetKernel& kernel, std::span<void* const> tensors) override {
    launches_.push_back({&kernel, {tensors.begin(), tensors.end()}});
    if (kernel.threads() > threads_) {
      team_.reset();
      threads_ = kernel.threads();
    }
    scratch_bytes_ = std::max(scratch_bytes_, round_up(kernel.scratch_bytes(), kPage));
    shared_ = false;
    return std::nullopt;
  }
  std::optional<Reason> place(std::size_t launch, TensorId tensor, void* elements) override {
    Launch& l = launches_[launch];
    l.tensors[tensor.index()] = elements;
    if (l.bound != nullptr) l.bound->place(tensor, elements);
    return std::nullopt;
  }
  std::optional<Reason> choose_parts(std::size_t first, std::size_t last, double budget) override {
    return choose(first, last, budget);
  }
  Result<double> run(std::size_t first, std::size_t last) override {
    call(first, last);
    const auto start = Clock::now();
    for (std::size_t i = first; i < last; ++i)
      if (const auto why = launch(i)) return *why;
    return since(start);
  }
  Result<SequenceTiming> time(std::size_t first, std::size_t last, double budget,
                              const Progress& progress) override {
    constexpr std::size_t kLeast = 5, kMost = 1000;
    SequenceTiming timing{.launches_timed_by = "in runs of their own, in turn with the whole's"};
    if (auto why = choose(first, last, budget)) return *why;
    timing.launches.resize(last - first);
    std::vector<double>& all = timing.whole.seconds;
    const auto start = Clock::now();
    while (all.size() < kMost && (all.size() < kLeast ? since(start) < 4 * budget || all.size() < 3
                                                      : since(start) < budget)) {
      const Result<double> seconds = run(first, last);
      if (!seconds) return seconds.why();
      all.push_back(*seconds);
      if (auto why = run_clocked(first, last, timing.launches)) return *why;
      if (progress) progress("timing", std::min(1.0, since(start) / budget));
    }
    timing.whole.runs = std::ssize(all);
    return timing;
  }

 private:
  struct Launch {
    TargetKernel* kernel;
    std::vector<void*> tensors;
    std::unique_ptr<BoundKernel> bound = {};  ///< since its first run, where the kernel can be
    int parts = 0;                            ///< 0: as many as the kernel has threads
  };
  int parts_of(const Launch& l) const { return l.parts > 0 ? l.parts : l.kernel->threads(); }

  /// Wakes the helpers where some launch is shared.
  void call(std::size_t first, std::size_t last) {
    for (std::size_t i = first; team_ && i < last; ++i)
      if (parts_of(launches_[i]) > 1) return team_->call();
  }
  /// One working memory for all launches: they run one after the other.
  std::optional<Reason> share_scratch() {
    if (std::exchange(shared_, true) || scratch_bytes_ == 0) return std::nullopt;
    const auto all = static_cast<std::size_t>(scratch_bytes_ * threads_);
    const std::shared_ptr<void> memory = host_memory(all, kPage);
    if (memory == nullptr) return Reason{"there is not so much memory"};
    for (Launch& l : launches_) {
      l.bound.reset();
      l.kernel->share_scratch(memory, scratch_bytes_);
    }
    return std::nullopt;
  }
  std::optional<Reason> launch(std::size_t i) {
    if (auto why = share_scratch()) return why;
    Launch& l = launches_[i];
    if (l.bound == nullptr) {
      for (std::size_t t = 0; t < l.tensors.size(); ++t)
        if (l.kernel->needs(TensorId(t)) && !l.kernel->place(TensorId(t), l.tensors[t]))
          return Reason{"a kernel keeps its tensors in memory of its own"};
      l.bound = l.kernel->bound();
    }
    if (l.bound == nullptr) {
      if (const Result<double> seconds = l.kernel->run(); !seconds) return seconds.why();
      return l.kernel->fault(true);
    }
    const int parts = parts_of(l);
    if (parts == 1) {
      l.bound->run(0, 0, 1);
      return std::nullopt;
    }
    struct Shared {
      BoundKernel& kernel;
      int parts;
    } shared{*l.bound, parts};
    if (team_ == nullptr) team_ = team_of(threads_);
    team_->run(
        parts,
        [](void* of, int thread, int part) {
          const Shared& s = *static_cast<const Shared*>(of);
          s.kernel.run(thread, part, s.parts);
        },
        &shared);
    return std::nullopt;
  }
  /// One run of each, its seconds added to those that it has.
  std::optional<Reason> run_clocked(std::size_t first, std::size_t last,
                                    std::vector<std::vector<double>>& seconds) {
    call(first, last);
    for (std::size_t i = first; i < last; ++i) {
      const auto start = Clock::now();
      if (auto why = launch(i)) return why;
      seconds[i - first].push_back(since(start));
    }
    return std::nullopt;
  }
  /// Which of them threads share, once for the same launches.
  std::optional<Reason> choose(std::size_t first, std::size_t last, double budget) {
    if (threads_ == 1 || chosen_ == std::pair(first, last)) return std::nullopt;
    chosen_ = {first, last};
    struct Timed final : TimedLaunches {
      Timed(HostSequence& s, std::size_t from, std::size_t to) : of(s), first(from), last(to) {}
      void cut(const LaunchParts& parts) {
        for (std::size_t i = first; i < last; ++i) of.launches_[i].parts = parts[i - first];
      }
      std::optional<Reason> clock(const LaunchParts& parts,
                                  std::vector<std::vector<double>>& seconds) override {
        cut(parts);
        return of.run_clocked(first, last, seconds);
      }
      Result<double> run(const LaunchParts& parts) override {
        cut(parts);
        return of.run(first, last);
      }
      int threads(std::size_t n) const override {
        return of.launches_[first + n].kernel->threads();
      }
      double now() const override { return since(start); }
      HostSequence& of;
      std::size_t first, last;
      Clock::time_point start = Clock::now();
    } timed(*this, first, last);
    const Result<LaunchParts> best = choose_shared(timed, last - first, budget);
    if (!best) return best.why();
    const Result<LaunchParts> finer = cut_finer(timed, *best, budget);
    if (!finer) return finer.why();
    timed.cut(*finer);
    return std::nullopt;
  }

  std::vector<Launch> launches_;
  int threads_ = 1;
  std::pair<std::size_t, std::size_t> chosen_ = {};  ///< launches that choose() has been through
  std::shared_ptr<Team> team_;
  std::int64_t scratch_bytes_ = 0;  ///< of a thread, the most that a kernel needs
  bool shared_ = false;             ///< all kernels have the same working memory
  std::vector<std::shared_ptr<void>> owned_;
};

}  // namespace

Result<std::unique_ptr<LaunchSequence>> host_sequence(const std::shared_ptr<Device>&) {
  return std::unique_ptr<LaunchSequence>(std::make_unique<HostSequence>());
}

}  // namespace tilewright::codegen
