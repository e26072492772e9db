#include "core/lowering/gpu/early.h"

#include <algorithm>
#include <vector>

#include "core/lowering/gpu/block_time.h"

namespace tilewright::lowering {
namespace {

using Kind = Step::Kind;

struct Waits {
  const ThreadProgram& p;
  const std::function<bool(TensorId)>& written;

  bool reads(const Read& r) const {
    return r.at_home() && written(r.from == Read::From::home ? r.tensor : r.gather.tensor);
  }
  bool stores(const Write& w) const {
    return w.leaves || p.value(w.value).storage == Storage::direct;
  }
  /// Whether a step must not be done while the launch before runs.
  bool operator()(const Step& s) const {
    switch (s.kind) {
      case Kind::loop:
      case Kind::blocks:
      case Kind::parts:
      case Kind::part:
        return std::ranges::any_of(s.body, *this);
      case Kind::load:
      case Kind::stage:
      case Kind::spread:
        return written(p.value(s.values.front()).tensor);
      case Kind::compute:
        return (s.run && written(s.run->gather.tensor)) ||
               std::ranges::any_of(s.reads, [this](const Read& r) { return reads(r); }) ||
               std::ranges::any_of(s.writes, [this](const Write& w) { return stores(w); });
      case Kind::declare:
      case Kind::hold:
      case Kind::put:
      case Kind::start:
      case Kind::lanes:
      case Kind::exchange:
      case Kind::keep:
        return false;
      case Kind::store:
        return true;
      case Kind::barrier:
        return s.all_blocks;
    }
    return true;
  }
};

bool brings(const Step& s) {
  return s.kind == Kind::declare || s.kind == Kind::load || s.kind == Kind::stage ||
         s.kind == Kind::spread;
}

void place(std::vector<Step>& steps, const Waits& waits, bool next) {
  auto at = std::ranges::find_if(steps, waits);
  // All blocks go through the steps of such a loop once.
  if (at != steps.end() && at->kind == Kind::blocks && !at->idle)
    return place(at->body, waits, next);
  if (at != steps.end()) {
    const auto end = std::find_if_not(at, steps.end(), brings);
    at = std::stable_partition(at, end, [&](const Step& s) { return !waits(s); });
  }
  for (auto before = steps.begin(); before != at; ++before)
    before->ahead = before->ahead || before->kind == Kind::load;
  Step wait;
  wait.kind = Kind::barrier;
  wait.launches = true;
  wait.next = next;
  steps.insert(at, std::move(wait));
}

/// Of each tensor that the kernel reads or writes at home, once.
double bytes_at_home(const Schedule& s, const ScheduledKernel& k) {
  std::vector<bool> seen(s.workload->tensors().size(), false);
  double bytes = 0;
  for (const Buffer& b : k.buffers) {
    if (seen[b.tensor.index()] || (b.role == BufferRole::intermediate && !b.leaves)) continue;
    seen[b.tensor.index()] = true;
    bytes += static_cast<double>(s.workload->tensor(b.tensor).bytes().value);
  }
  return bytes;
}

/// Cycles of an SM for each block that says that the next launch may begin: 162 ns in kernels of 62
/// to 1,986 blocks an SM, which are limited by that (h100-launches-early.json).
constexpr double kSaysSo = 320;

}  // namespace

bool lets_next_begin(const Schedule& s, int kernel, std::int64_t threads) {
  const auto r = block_rates(*s.machine, s.workload->dtype());
  return !r || lets_next_begin(s, kernel, threads, *r);  // nothing is known of its rates
}

bool lets_next_begin(const Schedule& s, int kernel, std::int64_t threads, const BlockRates& r) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(kernel)];
  const double blocks = static_cast<double>(k.blocks) / static_cast<double>(r.sms);
  if (kSaysSo * blocks > std::max(bytes_at_home(s, k) / r.memory, r.launch)) return false;
  if (threads == 0) return true;
  const std::int64_t places = std::clamp<std::int64_t>(r.threads / threads, 1, r.blocks);
  return places == 1 || blocks <= 0.5 || blocks >= static_cast<double>(places);
}

void wait_for_launches(ThreadProgram& p, const std::function<bool(TensorId)>& written, bool next) {
  place(p.steps, Waits{p, written}, next);
}

}  // namespace tilewright::lowering
