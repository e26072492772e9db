// What a program's launches take where each finds what those before it have left: in a core's
// cache, or in another core's.
#include <algorithm>
#include <functional>
#include <map>

#include "core/machine/written.h"
#include "core/workload/cut.h"
#include "core/workload/joins.h"
#include "harness/program.h"
#include "harness/shares.h"

namespace tilewright::harness {
namespace {

/// What a launch touches of a tensor at home.
struct Touched {
  TensorId tensor;
  Box box;
  int dim = -1;  ///< of which each thread has a part of its own; -1: every thread may touch all
  bool written = false;
};

double bytes_of(const Workload& w, const Touched& x) {
  return static_cast<double>(x.box.size() * size_of(w.tensor(x.tensor).dtype));
}

/// The first dimension that the loop walks; -1: none.
int walked(const Access& a, LoopId loop) {
  for (std::size_t d = 0; loop.valid() && d < a.index.size(); ++d)
    for (const Term& t : a.index[d].terms)
      if (t.loop == loop) return static_cast<int>(d);
  return -1;
}

/// By the kernel's TensorIds. `threads`: that share it.
std::vector<Touched> touched_by(const ProgramKernel& kernel, int threads) {
  const Workload& w = *kernel.workload;
  const LoopId shared = threads > 1 ? loop_of_threads(kernel.plan, w, threads) : LoopId();
  std::map<TensorId, Touched> all;
  const auto add = [&](const Operator& op, const Access& a, bool written) {
    if (!w.is_input(a.tensor) && !w.is_output(a.tensor)) return;
    std::vector<Interval> ranges;
    for (LoopId l : op.loops) ranges.push_back({0, w.loop(l).extent});
    const Box box = footprint(w, op, a, ranges);
    const int dim = walked(a, shared);
    const auto [at, fresh] =
        all.try_emplace(a.tensor, Touched{.tensor = a.tensor, .box = box, .dim = dim});
    Touched& x = at->second;
    if (!fresh) {
      x.box = hull(x.box, box);
      if (x.dim != dim) x.dim = -1;
    }
    x.written = x.written || written;
  };
  for (const Operator& op : w.operators()) {
    for (const Access& a : op.inputs) add(op, a, false);
    for (const Output& o : op.outputs) add(op, o.target, true);
  }
  std::vector<Touched> list;
  for (const auto& [t, x] : all) list.push_back(x);
  return list;
}

/// What the caches have, the latest first.
struct Held {
  TensorId tensor;
  Box box;
  double bytes = 0;
  /// Whose: no core's alone, the first one's, or each has its part of `dim`.
  enum class Where : std::uint8_t { anywhere, first, parts } where = Where::anywhere;
  int dim = -1;
};

/// The share of it that the thread which has most to bring finds in no cache of its own core.
/// `dim`: of which each of `threads` reads a part, -1: all of it; `shared`: else the first reads
/// it.
double crossing(const Held& h, int dim, bool shared, int threads) {
  const double n = threads;
  if (h.where == Held::Where::anywhere || threads == 1) return 0;
  if (!shared) return h.where == Held::Where::first ? 0 : 1 - 1 / n;
  if (h.where == Held::Where::first) return dim >= 0 ? 1 / n : 1;
  if (dim >= 0 && dim == h.dim) return 0;
  return (1 - 1 / n) / (dim >= 0 ? n : 1);
}

class Caches {
 public:
  Caches(const Program& program, const Machine& m)
      : program_(program), w_(*program.workload), constant_(constant_operators(w_)) {
    for (const Level& level : m.levels)
      if (level.kind == LevelKind::cache && level.managed != Managed::software &&
          level.private_to >= Unit::grid) {
        near_ = static_cast<double>(level.capacity.value);  // the innermost is the last
        capacity_ = std::max(capacity_, near_);
      }
    if (!m.units.empty() && m.units.front().clock_hz > 0) {
      const auto& cycles = m.units.front().cycles;
      const auto cycles_of = [&](const char* key, double standard) {
        const auto at = cycles.find(key);
        return at != cycles.end() ? at->second : standard;
      };
      const double cycle = 1 / m.units.front().clock_hz;
      gpu_ = m.kind == "gpu";
      launch_ = gpu_ ? 0 : cycles_of(kLaunch, 250) * cycle;  // which prices of a GPU's kernels have
      launch_code_ = cycles_of(kLaunchCode, gpu_ ? 0 : 700) * cycle;
      taken_over_ = cycles_of(kTakingOver, 16) * cycle / 64;
    }
    if (program.joins_in_place) inside_ = tensors_inside(w_);
    nothing_ = joins_of_nothing(w_, inside_);
    for (const ProgramKernel& k : program.kernels) {
      const auto built = k.emitted ? k.emitted->code_bytes() : 0;
      code_.push_back(gpu_ ? static_cast<double>(built) : 2 << 10);
      shared_.push_back(touched_by(k, program.threads));
      alone_.push_back(program.threads > 1 ? touched_by(k, 1) : shared_.back());
    }
  }

  bool once(const Launch& l) const { return all_of(l, constant_); }
  /// Whether it joins what lies in its place already.
  bool copies_nothing(const Launch& l) const { return all_of(l, nothing_); }

  /// Seconds until a launch computes: it is called and reads where its tensors lie; its code comes
  /// from the second cache, where too many others have run since. A GPU's launch waits for each
  /// KiB of its instructions, where they do not stay (h100-cold.json: 32 KiB do): not for the first
  /// ones, which come while the launch before ends, nor for more than launches run. Both are chosen
  /// by the networks of h200-onnx-files-fourth.json and -fresh.json, which take 0.02 to 0.37 us a
  /// launch longer than their launches in runs of their own.
  double begins(const Launch& l) const {
    constexpr double kRoom = 32 << 10, kFirst = 2 << 10, kMost = 8 << 10;
    const auto at = std::ranges::find(ran_, l.kernel);
    double since = code_[l.kernel];
    for (auto each = ran_.begin(); each != at; ++each) since += code_[*each];
    if (at != ran_.end() && since <= (gpu_ ? kRoom : near_)) return launch_;
    const double waits = std::clamp(code_[l.kernel], kFirst, kMost) - kFirst;
    return launch_ + launch_code_ * (gpu_ ? waits / 1024 : 1);
  }

  /// Seconds of the launch on these threads, as the caches are.
  std::optional<double> seconds(const Launch& l, bool shared) const {
    const ProgramKernel& kernel = program_.kernels[l.kernel];
    const ProgramKernel::Seconds& x =
        program_.threads == 1 || shared ? kernel.shared : kernel.alone;
    double all = 0, there = 0, brought = 0;  // bytes
    for (const Touched& t : touched(l, shared)) {
      const double bytes = bytes_of(w_, t);
      all += bytes;
      double since = 0;
      const Held* held = find(t, since);
      if (held == nullptr || capacity_ <= 0) continue;
      // All of it below the capacity, nothing well above it: as in_runs.
      const double stays =
          std::clamp((1.15 * capacity_ - since - bytes) / (0.4 * capacity_), 0.0, 1.0);
      // What nobody has written comes from further out, where another core has it.
      const double others = crossing(*held, t.dim, shared, program_.threads);
      there += stays * bytes * (changes(t.tensor) ? 1 : 1 - others);
      if (changes(t.tensor)) brought += stays * bytes * others;
    }
    std::optional<double> of = x.predicted;
    if (x.predicted && x.again && all > 0 && *x.again < *x.predicted)
      of = *x.predicted + there / all * (*x.again - *x.predicted);
    if (of) *of += brought * taken_over_ + begins(l);
    return of;
  }

  /// As the launch leaves them.
  void run(const Launch& l, bool shared) {
    std::erase(ran_, l.kernel);
    ran_.insert(ran_.begin(), l.kernel);
    for (const Touched& t : touched(l, shared)) {
      Held next{.tensor = t.tensor, .box = t.box, .bytes = bytes_of(w_, t)};
      double since = 0;
      const Held* held = find(t, since);
      const auto own = shared && (t.written || t.dim >= 0) ? Held::Where::parts
                       : shared                            ? Held::Where::anywhere
                                                           : Held::Where::first;
      if (t.written || held == nullptr || program_.threads == 1)
        next.where = own, next.dim = t.dim;
      else if (crossing(*held, t.dim, shared, program_.threads) == 0)
        next.where = held->where, next.dim = held->dim;
      std::erase_if(held_, [&](const Held& h) {
        return h.tensor == t.tensor && (t.written || h.box == t.box);
      });
      held_.insert(held_.begin(), std::move(next));
    }
  }

 private:
  static bool all_of(const Launch& l, const std::vector<bool>& is) {
    return std::ranges::all_of(l.operators, [&](OpId op) { return is[op.index()]; });
  }

  /// Whether runs write it.
  bool changes(TensorId t) const {
    const OpId by = w_.producer(t);
    return by.valid() && !constant_[by.index()];
  }

  /// By the whole's TensorIds: of tensors that others lie in, those.
  std::vector<Touched> touched(const Launch& l, bool shared) const {
    std::vector<Touched> all;
    const std::function<void(const Touched&)> add = [&](const Touched& x) {
      const OpId by = w_.producer(x.tensor);
      if (!by.valid() || !nothing_[by.index()] || !(x.box == w_.tensor(x.tensor).whole()))
        return all.push_back(x);
      for (const Access& a : w_.op(by).inputs)
        add({.tensor = a.tensor,
             .box = w_.tensor(a.tensor).whole(),
             .dim = x.dim,
             .written = x.written});
    };
    for (Touched x : (shared ? shared_ : alone_)[l.kernel]) {
      x.tensor = l.tensors[x.tensor.index()];
      add(x);
    }
    return all;
  }

  /// What has it; `since` becomes the bytes that were touched after that.
  const Held* find(const Touched& t, double& since) const {
    since = 0;
    for (const Held& h : held_) {
      if (h.tensor == t.tensor && contains(h.box, t.box)) return &h;
      since += h.bytes;
    }
    return nullptr;
  }

  const Program& program_;
  const Workload& w_;
  std::vector<bool> constant_, nothing_;
  std::map<TensorId, Inside> inside_;
  double capacity_ = 0;    ///< of a core's last cache
  double taken_over_ = 0;  ///< seconds a byte
  double near_ = 0;        ///< bytes of a core's first cache
  bool gpu_ = false;
  double launch_ = 0, launch_code_ = 0;               ///< seconds (core/machine/written.h)
  std::vector<double> code_;                          ///< of a kernel, bytes that launches run
  std::vector<std::size_t> ran_;                      ///< kernels, the latest first
  std::vector<std::vector<Touched>> shared_, alone_;  ///< by kernel
  std::vector<Held> held_;
};

}  // namespace

std::vector<std::optional<double>> predicted_seconds(const Program& program, const Machine& m,
                                                     bool alone) {
  if (alone) {
    std::vector<std::optional<double>> seconds;
    for (const Launch& l : program.launches)
      seconds.push_back(program.kernels[l.kernel].shared.predicted);
    return seconds;
  }
  Caches caches(program, m);
  std::vector<std::optional<double>> seconds(program.launches.size());
  // The second run finds what the first has left.
  for (int run = 0; run < 2; ++run)
    for (std::size_t i = 0; i < program.launches.size(); ++i) {
      const Launch& l = program.launches[i];
      seconds[i] = program.kernels[l.kernel].shared.predicted;
      if (caches.once(l)) continue;
      if (caches.copies_nothing(l)) {
        seconds[i] = 0;
        continue;
      }
      bool shared = program.threads > 1;
      seconds[i] = caches.seconds(l, shared);
      if (shared)
        if (const auto alone = caches.seconds(l, false);
            alone && (!seconds[i] || *alone < *seconds[i]))
          seconds[i] = alone, shared = false;
      caches.run(l, shared);
    }
  return seconds;
}

}  // namespace tilewright::harness
