#include "harness/gauge_samples.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "core/base/format.h"
#include "harness/pipeline.h"
#include "harness/turns.h"

namespace tilewright::harness {
namespace {

constexpr double kSampleSeconds = 0.001;  // shorter than a core keeps its speed
constexpr int kTimesTogether = 16;        // runs of several threads in a sample, at least
constexpr double kGroupSeconds = 2e-5;    // of short runs, of which the mean is taken

/// On so many threads at once, all begun together; the seconds of the slowest.
double together(int threads, const std::function<void(int)>& work) {
  if (threads == 1) return seconds_of([&] { work(0); });
  std::vector<double> took(static_cast<std::size_t>(threads));
  std::barrier ready(threads);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      ready.arrive_and_wait();
      took[static_cast<std::size_t>(t)] = seconds_of([&] { work(t); });
    });
  for (std::thread& t : all) t.join();
  return *std::ranges::max_element(took);
}

/// Processors that this thread may run on, in order.
std::vector<int> processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return all;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &allowed)) all.push_back(p);
  return all;
}
void stay_on(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

}  // namespace

double pace() {
  constexpr std::size_t kLines = 128, kTimes = 200;
  static const LineMemory memory = [] {
    LineMemory lines = lines_of_memory(kLines * sizeof(MemoryLine));
    write_pass(lines.get(), kLines);
    return lines;
  }();
  return seconds_of([] {
    for (std::size_t i = 0; i < kTimes; ++i) read_pass(memory.get(), kLines);
  });
}

Prepared reading(std::size_t bytes_a_thread, int threads) {
  const std::size_t block = kPassLines * sizeof(MemoryLine);
  const std::size_t bytes = std::max(block, bytes_a_thread / block * block);
  std::vector<LineMemory> memory;
  for (int t = 0; t < threads; ++t) memory.push_back(lines_of_memory(bytes));
  const std::size_t lines = bytes / sizeof(MemoryLine);
  together(threads, [&](int t) { write_pass(memory[static_cast<std::size_t>(t)].get(), lines); });
  const std::size_t passes = std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes);
  return Sample([=] {
    const double seconds = together(threads, [&](int t) {
      for (std::size_t p = 0; p < passes; ++p)
        read_pass(memory[static_cast<std::size_t>(t)].get(), lines);
    });
    return seconds / (static_cast<double>(bytes) * static_cast<double>(passes) * threads);
  });
}

Prepared writing(std::size_t bytes_wanted, void (*pass)(MemoryLine*, std::size_t)) {
  const std::size_t block = kPassLines * sizeof(MemoryLine);
  const std::size_t bytes = std::max(block, bytes_wanted / block * block);
  const LineMemory memory = lines_of_memory(bytes);
  const std::size_t lines = bytes / sizeof(MemoryLine);
  pass(memory.get(), lines);
  const std::size_t passes = std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes);
  return Sample([=] {
    const double seconds = seconds_of([&] {
      for (std::size_t p = 0; p < passes; ++p) pass(memory.get(), lines);
    });
    return seconds / (static_cast<double>(bytes) * static_cast<double>(passes));
  });
}

Prepared taking_over(std::size_t bytes_wanted) {
  // The first and the last are seldom two threads of one core.
  const std::vector<int> all = processors();
  if (all.size() < 2) return Reason{"what another core has written: there is one processor"};
  const std::size_t block = kPassLines * sizeof(MemoryLine);
  const std::size_t bytes = std::max(block, bytes_wanted / block * block);
  const LineMemory memory = lines_of_memory(bytes);
  const std::size_t lines = bytes / sizeof(MemoryLine);
  return Sample([=] {
    constexpr int kTurns = 20;
    std::atomic<int> turn = 0;
    const auto wait_for = [&](int which) {
      while (turn.load(std::memory_order_acquire) != which) sched_yield();
    };
    std::thread writer([&] {
      stay_on(all.front());
      for (int i = 0; i < kTurns; ++i) {
        wait_for(2 * i);
        write_pass(memory.get(), lines);
        turn.store(2 * i + 1, std::memory_order_release);
      }
    });
    double least = 1e9;
    std::thread reader([&] {
      stay_on(all.back());
      for (int i = 0; i < kTurns; ++i) {
        wait_for(2 * i + 1);
        least = std::min(least, seconds_of([&] { read_pass(memory.get(), lines); }));
        turn.store(2 * i + 2, std::memory_order_release);
      }
    });
    writer.join();
    reader.join();
    return least / static_cast<double>(bytes);
  });
}

Prepared chasing(std::size_t bytes) {
  const std::size_t lines = std::max<std::size_t>(64, bytes / sizeof(MemoryLine));
  const LineMemory memory = lines_of_memory(lines * sizeof(MemoryLine));
  make_chain(memory.get(), lines, 1);
  auto at = std::make_shared<std::size_t>(0);
  return Sample([=] {
    constexpr std::size_t kSteps = 20000;
    return seconds_of([&] { *at = follow_chain(memory.get(), *at, kSteps); }) / kSteps;
  });
}

Prepared packing(std::size_t row) {
  constexpr std::size_t kLines = 1024;
  const std::size_t rows = kLines / row, apart = 17 * row;
  const LineMemory from = lines_of_memory(rows * apart * sizeof(MemoryLine));
  const LineMemory to = lines_of_memory(rows * row * sizeof(MemoryLine));
  write_pass(from.get(), rows * apart);
  // Rows shorter than a pass are copied as the library does it, which is told their size.
  const auto copy_row = [row](const MemoryLine* source, MemoryLine* target) {
    if (row % kPassLines == 0)
      copy_pass(source, target, row);
    else
      std::memcpy(target, source, row * sizeof(MemoryLine));
  };
  return Sample([=] {
    constexpr int kTimes = 200;
    const double seconds = seconds_of([&] {
      for (int i = 0; i < kTimes; ++i)
        for (std::size_t r = 0; r < rows; ++r) copy_row(from.get() + r * apart, to.get() + r * row);
    });
    return seconds / (kTimes * rows * row);
  });
}

namespace {

/// Verified; the refusal says why it is not.
Job verified_job(const std::string& workload, const std::string& tree, int threads) {
  Request request;
  request.subject = "calibration.yaml";
  request.subject_text = workload;
  request.machine = "host";
  request.tree = tree;
  request.threads = threads;
  Job job = job_of(request);
  plan_job(job);
  emit_job(job);
  build_job(job);
  if (!job.refusal) verify_job(job, nullptr, reference_of(job.on.setting, request.seed));
  return job;
}

}  // namespace

Prepared running(const std::string& workload, const std::string& tree, int threads, double units) {
  const Job job = verified_job(workload, tree, threads);
  if (job.refusal) return Reason{*job.refusal};
  const std::shared_ptr<VerifiedKernel> kernel = job.kernel;
  kernel->run();
  const double once = std::max(1e-8, kernel->run());
  // The mean of several short runs: a clock may move by ten nanoseconds at a time.
  const int group = std::max(1, static_cast<int>(kGroupSeconds / once));
  // A thread whose core is another's at the moment is waited for: milliseconds, not microseconds.
  const int least_times = threads > 1 ? kTimesTogether : 1;
  const int times = std::max(least_times, static_cast<int>(kSampleSeconds / once / group));
  return Sample([=] {
    double least = 1e9;
    for (int i = 0; i < times; ++i) {
      double all = 0;
      for (int run = 0; run < group; ++run) all += kernel->run();
      least = std::min(least, all / group);
    }
    return least / units;
  });
}

namespace {

struct Launches {
  std::shared_ptr<codegen::LaunchSequence> sequence = {};
  std::vector<std::shared_ptr<VerifiedKernel>> kernels = {};

  /// One more launch of the job's kernel, on zeros.
  std::optional<Reason> add(const Job& job) {
    if (job.refusal) return Reason{*job.refusal};
    if (sequence == nullptr) {
      Result<std::unique_ptr<codegen::LaunchSequence>> made = job.target().sequence(nullptr);
      if (!made) return made.why();
      sequence = std::move(made).value();
    }
    std::vector<void*> tensors;
    for (const Tensor& t : job.on.setting.workload->tensors()) {
      const Result<void*> memory = sequence->take(t.bytes().value);
      if (!memory) return memory.why();
      std::memset(*memory, 0, static_cast<std::size_t>(t.bytes().value));
      tensors.push_back(*memory);
    }
    kernels.push_back(job.kernel);
    return sequence->add(job.kernel->kernel(), tensors);
  }
};

}  // namespace

Prepared launching(bool after_other_code) {
  // What most launches of small networks are: few rows of a product, and what follows it.
  constexpr std::size_t kKernels = 8, kTimes = 50;
  Launches all;
  for (std::size_t i = 0; i < kKernels; ++i) {
    const std::size_t rows = 1 + i % 4, columns = 16 * (1 + i % 3);
    if (const auto why = all.add(verified_job(
            formatted("name: launch\nloops: {{m: {}, \"n\": {}, k: {}}}\noperators: [\"H[m,n] += "
                      "X[m,k] * W[k,n]\", \"Y[m,n] = relu(H[m,n] + B[n])\"]\n",
                      rows, columns, 8 + 4 * i),
            formatted("m/{} n/{} ( C.H C.Y )", rows, columns), 1)))
      return *why;
  }
  if (const auto seconds = all.sequence->run(0, kKernels); !seconds) return seconds.why();
  return Sample([all, after_other_code] {
    double seconds = 0;
    for (std::size_t i = 0; i < kTimes * kKernels; ++i) {
      if (after_other_code) run_other_code();
      seconds += all.sequence->run(i % kKernels, i % kKernels + 1).value();
    }
    return seconds / (kTimes * kKernels);
  });
}

Prepared launching_nothing() {
  constexpr std::size_t kLaunches = 1000;
  Launches all;
  const Job job =
      verified_job("name: launch\nloops: {i: 16}\noperators: [\"Y[i] = X[i] + 1\"]\n", "C.Y", 1);
  for (std::size_t i = 0; i < kLaunches; ++i)
    if (const auto why = all.add(job)) return *why;
  if (const auto seconds = all.sequence->run(0, kLaunches); !seconds) return seconds.why();
  return Sample([all] { return all.sequence->run(0, kLaunches).value() / kLaunches; });
}

Prepared at_places(const std::function<Prepared()>& prepare) {
  constexpr std::size_t kPlaces = 4;
  std::vector<Sample> all;
  while (all.size() < kPlaces) {
    Prepared one = prepare();
    if (!one) return one;
    all.push_back(std::move(one).value());
  }
  auto turn = std::make_shared<std::size_t>(0);
  return Sample([=] { return all[(*turn)++ % all.size()](); });
}

}  // namespace tilewright::harness
