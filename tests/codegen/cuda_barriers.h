// Kernels run once with each of their barriers left out: what tells that it is missing?
#pragma once

#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <span>

#include "tests/codegen/cuda_support.h"

namespace tilewright::testing {

class BarriersLeftOut {
 public:
  /// Of a barrier that is left out. `fault`: a deadlock, what nobody has written, a barrier that
  /// some do not come to. `wrong`: nothing is found, but values are wrong, as threads run in order
  /// or as they take turns. `idle`: nothing is wrong, also without all of these together.
  /// `doubled`: nothing is wrong, but for want of an idle one left out with it something is.
  enum Outcome { race, fault, wrong, doubled, idle, kOutcomes };
  static constexpr const char* kNames[] = {"race", "other fault", "values only", "doubled", "idle"};

  /// In a long run (TILEWRIGHT_CASES is set) threads take turns by three seeds,
  /// and values are looked at also where a race is found.
  static bool long_run() { return std::getenv("TILEWRIGHT_CASES") != nullptr; }

  /// Runs the kernels of `source` with all of their barriers, where nothing may be found, and then
  /// without each of them in turn.
  void look(const cuda_host::Module& module, const cuda::Source& source, const Workload& w,
            std::uint64_t seed, const std::string& what) {
    const auto run = [&](cuda_host::RunOptions options) {
      auto result = run_cuda(module, source, w, seed, options);
      EXPECT_TRUE(result) << result.reason();
      return result ? *result : CudaRun{};
    };
    const CudaRun whole = run({.list_barriers = true});
    EXPECT_TRUE(whole.report.clean()) << whole.report.findings.front().text << "\n" << what;
    const std::uint64_t most = long_run() ? 3 : 1;
    const auto outcome_without = [&](const std::vector<std::uint32_t>& calls) {
      Outcome outcome = idle;
      for (std::uint64_t turns = 0; turns <= most; ++turns) {
        const CudaRun without = run({.without = calls, .turns = turns});
        const bool right = same(whole, without, w);
        if (turns == 0) outcome = found(without.report);
        if (outcome == fault || (outcome == race && !long_run())) return outcome;
        if (outcome == race && !right) {
          ++races_seen_in_values_;
          return race;
        }
        if (outcome == idle && found(without.report) != idle) return found(without.report);
        if (outcome == idle && !right) return wrong;
      }
      return outcome;
    };
    for (std::uint64_t turns = 1; turns <= most; ++turns) {
      const CudaRun again = run({.turns = turns});
      EXPECT_TRUE(again.report.clean()) << again.report.findings.front().text << "\n" << what;
      EXPECT_TRUE(same(whole, again, w)) << what;
    }
    ++kernels_;
    const std::vector<cuda_host::Barrier>& barriers = whole.report.barriers;
    std::vector<Outcome> outcomes;
    std::vector<std::size_t> alone;  // idle if nothing else is left out
    for (std::size_t i = 0; i < barriers.size(); ++i) {
      outcomes.push_back(outcome_without(barriers[i].calls));
      if (outcomes.back() == idle) alone.push_back(i);
    }
    // Of these as many as can be left out together, in their order. All are tried at once, and in
    // halves where something is wrong: most are idle.
    std::vector<std::uint32_t> idle_calls;
    const std::function<void(std::span<const std::size_t>)> leave_out =
        [&](std::span<const std::size_t> some) {
          std::vector<std::uint32_t> more = idle_calls;
          for (const std::size_t i : some)
            more.insert(more.end(), barriers[i].calls.begin(), barriers[i].calls.end());
          const bool seen = some.size() == 1 && idle_calls.empty();
          if (seen || outcome_without(more) == idle) {
            idle_calls = std::move(more);
          } else if (some.size() == 1) {
            outcomes[some.front()] = doubled;
          } else {
            leave_out(some.first(some.size() / 2));
            leave_out(some.subspan(some.size() / 2));
          }
        };
    if (!alone.empty()) leave_out(alone);
    for (std::size_t i = 0; i < barriers.size(); ++i) {
      ++counts_[kind_of(barriers[i])][outcomes[i]];
      if (outcomes[i] == wrong ||
          (outcomes[i] >= doubled && std::getenv("TILEWRIGHT_SHOW") != nullptr))
        show(barriers[i], outcomes[i], source, what);
    }
  }

  /// How many barriers had that outcome; all of them without one.
  int count(Outcome outcome) const {
    int sum = 0;
    for (const auto& [kind, by] : counts_) sum += by[outcome];
    return sum;
  }
  int barriers() const {
    int sum = 0;
    for (int i = 0; i < kOutcomes; ++i) sum += count(static_cast<Outcome>(i));
    return sum;
  }
  void print() const {
    std::cout << kernels_ << " kernels, " << barriers() << " barriers:";
    for (int i = 0; i < kOutcomes; ++i)
      std::cout << (i > 0 ? ", " : " ") << count(static_cast<Outcome>(i)) << " " << kNames[i];
    if (long_run()) std::cout << " (" << races_seen_in_values_ << " of the races in values too)";
    std::cout << "\n";
    for (const auto& [kind, by] : counts_) {
      for (const int n : by) std::cout << std::string(7 - std::to_string(n).size(), ' ') << n;
      std::cout << "  " << kind << "\n";
    }
  }

 private:
  static Outcome found(const cuda_host::Report& report) {
    using cuda_host::Fault;
    const auto races = [](const cuda_host::Finding& f) {
      return f.fault == Fault::race || f.fault == Fault::block_race;
    };
    if (std::ranges::any_of(report.findings, races)) return race;
    return report.clean() ? idle : fault;
  }
  /// Sums that blocks or warps add to in another order are another rounding away, which the first
  /// order may have been spared.
  static bool same(const CudaRun& a, const CudaRun& b, const Workload& w) {
    const bool atomic =
        std::ranges::any_of(a.report.launches, [](const cuda_host::LaunchCounts& l) {
          return std::ranges::any_of(l.tensors,
                                     [](const cuda_host::TensorBytes& t) { return t.atomic > 0; });
        });
    const double rounding = w.dtype() == DType::bf16  ? 0x1p-8
                            : w.dtype() == DType::f16 ? 0x1p-11
                                                      : 0;
    return atomic ? b.error <= 4 * std::max(a.error, rounding) + 1e-6 : a.outputs == b.outputs;
  }
  /// The device function, and where a helper calls it that line.
  static std::string kind_of(const cuda_host::Barrier& b) {
    const cuda_host::Place& p = b.places.front();
    if (p.caller_line == 0) return b.kind;
    return b.kind + " in " + p.file + ": " + p.text;
  }
  static void show(const cuda_host::Barrier& b, Outcome outcome, const cuda::Source& source,
                   const std::string& what) {
    std::cout << kNames[outcome] << " | " << b.kind << " | " << b.threads;
    for (const cuda_host::Place& p : b.places) std::cout << " | " << described(p) << ": " << p.text;
    std::cout << "\n" << what << "\n";
    if (std::getenv("TILEWRIGHT_TEXT") != nullptr) std::cout << source.text;
  }

  int kernels_ = 0, races_seen_in_values_ = 0;
  std::map<std::string, std::array<int, kOutcomes>> counts_;
};

}  // namespace tilewright::testing
