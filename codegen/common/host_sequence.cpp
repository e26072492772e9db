#include "codegen/common/host_sequence.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace tilewright::codegen {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class HostSequence final : public LaunchSequence {
 public:
  Result<void*> take(std::int64_t bytes) override {
    constexpr std::size_t kPage = 4096;
    const auto size = (static_cast<std::size_t>(bytes) + kPage) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, size);
    if (memory == nullptr) return Reason{"there is not so much memory"};
    owned_.emplace_back(memory, std::free);
    std::memset(memory, 0xff, size);
    return memory;
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
    return std::nullopt;
  }
  Result<double> run(std::size_t first, std::size_t last) override {
    const auto start = Clock::now();
    for (std::size_t i = first; i < last; ++i)
      if (const Result<double> seconds = launch(i); !seconds) return seconds;
    return since(start);
  }
  Result<SequenceTiming> time(std::size_t first, std::size_t last, double budget,
                              const Progress& progress) override {
    constexpr std::size_t kLeast = 5, kMost = 1000;
    SequenceTiming timing{.launches_timed_by = "in the runs of the whole"};
    timing.launches.resize(last - first);
    std::vector<double>& all = timing.whole.seconds;
    const auto start = Clock::now();
    while (all.size() < kMost && (all.size() < kLeast ? since(start) < 4 * budget || all.size() < 3
                                                      : since(start) < budget)) {
      const auto run = Clock::now();
      for (std::size_t i = first; i < last; ++i) {
        const Result<double> seconds = launch(i);
        if (!seconds) return seconds.why();
        timing.launches[i - first].push_back(*seconds);
      }
      all.push_back(since(run));
      if (progress) progress("timing", std::min(1.0, since(start) / budget));
    }
    timing.whole.runs = std::ssize(all);
    return timing;
  }

 private:
  struct Launch {
    TargetKernel* kernel;
    std::vector<void*> tensors;
  };
  Result<double> launch(std::size_t i) {
    const Launch& l = launches_[i];
    for (std::size_t t = 0; t < l.tensors.size(); ++t)
      if (l.kernel->needs(TensorId(t)) && !l.kernel->place(TensorId(t), l.tensors[t]))
        return Reason{"a kernel keeps its tensors in memory of its own"};
    const Result<double> seconds = l.kernel->run();
    if (!seconds) return seconds;
    if (const auto fault = l.kernel->fault(true)) return *fault;
    return seconds;
  }

  std::vector<Launch> launches_;
  std::vector<std::shared_ptr<void>> owned_;
};

}  // namespace

Result<std::unique_ptr<LaunchSequence>> host_sequence(const std::shared_ptr<Device>&) {
  return std::unique_ptr<LaunchSequence>(std::make_unique<HostSequence>());
}

}  // namespace tilewright::codegen
