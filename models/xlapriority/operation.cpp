// Operators as XLA's instructions: how many cycles, how much code.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/workload/bytes_read.h"
#include "models/stitching/loops.h"
#include "models/xlapriority/xlapriority.h"

namespace tilewright::xlapriority {
namespace {

/// Cycles of an instruction an element, by compute capability and type, as XLA's profile lists them
/// (hlo_op_profiles_data.h). What is not listed takes 3; other capabilities take the list of 8.6.
struct Profile {
  std::string_view function;
  int capability;
  double f16, f32, f64;
};
constexpr double kNotListed = 3;
constexpr std::array kProfiles = {
    Profile{"add", 70, 9, 6, 15},        Profile{"sub", 70, 9, 6, 15},
    Profile{"mul", 70, 9, 6, 15},        Profile{"div", 70, 73, 21, 501},
    Profile{"exp", 70, 128, 79, 358},    Profile{"log", 70, 232, 180, 318},
    Profile{"sqrt", 70, 122, 76, 324},   Profile{"rsqrt", 70, 122, 76, 263},
    Profile{"tanh", 70, 284, 269, 406},  Profile{"pow", 70, 709, 673, 2099},
    Profile{"div", 80, 3, 3, 831},       Profile{"log", 80, 321, 259, 699},
    Profile{"sqrt", 80, 124, 3, 397},    Profile{"rsqrt", 80, 3, 3, 329},
    Profile{"tanh", 80, 499, 504, 733},  Profile{"pow", 80, 3, 1221, 1861},
    Profile{"add", 86, 3, 3, 97},        Profile{"sub", 86, 3, 3, 97},
    Profile{"mul", 86, 3, 3, 97},        Profile{"div", 86, 3, 3, 2016},
    Profile{"exp", 86, 108, 86, 1652},   Profile{"log", 86, 266, 244, 608},
    Profile{"sqrt", 86, 97, 75, 986},    Profile{"rsqrt", 86, 97, 75, 698},
    Profile{"tanh", 86, 212, 190, 1609}, Profile{"pow", 86, 975, 925, 5511},
    Profile{"add", 90, 7, 7, 15},        Profile{"sub", 90, 7, 7, 15},
    Profile{"mul", 90, 7, 3, 15},        Profile{"div", 90, 43, 19, 526},
    Profile{"exp", 90, 102, 79, 376},    Profile{"log", 90, 182, 166, 815},
    Profile{"sqrt", 90, 95, 75, 332},    Profile{"rsqrt", 90, 95, 75, 277},
    Profile{"tanh", 90, 502, 467, 431},  Profile{"pow", 90, 526, 510, 2205},
};

/// What XLA writes for functions that it has no instruction of: LogisticExpander for sigmoid.
std::vector<std::string_view> instructions_of(std::string_view function) {
  if (function == "sigmoid") return {"neg", "exp", "add", "div"};
  if (function == "gelu") return {"mul", "erf", "add", "mul", "mul"};
  if (function == "square") return {"mul"};
  if (function == "recip") return {"div"};
  return {function};
}

double cycles_of(std::string_view function, DType type, int capability) {
  const bool listed =
      std::ranges::any_of(kProfiles, [&](const Profile& p) { return p.capability == capability; });
  const int as = listed ? capability : 86;
  for (const Profile& p : kProfiles)
    if (p.function == function && p.capability == as)
      return type == DType::f16 ? p.f16 : type == DType::f64 ? p.f64 : p.f32;
  return kNotListed;
}

struct Counted {
  double cycles = 0, code = 0;
};
void count(const Expr& e, DType type, int capability, Counted& c) {
  for (const Expr& a : e.args) count(a, type, capability, c);
  if (e.kind == Expr::Kind::constant) c.code += 2;  // and its broadcast
  if (e.kind == Expr::Kind::index) ++c.code;
  if (e.kind != Expr::Kind::call) return;
  const bool scales = e.function == "div" && e.args[1].kind == Expr::Kind::constant;
  for (std::string_view one : instructions_of(scales ? std::string_view("mul") : e.function)) {
    c.cycles += cycles_of(one, type, capability);
    ++c.code;
  }
}

double points_of(const Workload& w, std::span<const LoopId> loops) {
  double n = 1;
  for (LoopId l : loops) n *= static_cast<double>(w.loop(l).extent);
  return n;
}

std::string_view combining(Combine c) {
  return c == Combine::sum ? "add" : c == Combine::product ? "mul" : "max";
}

/// Whether a read may fall outside of its tensor: XLA pads.
bool pads(const Workload& w, const Operator& op, const Access& a) {
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, w.loop(l).extent});
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    if (a.index[d].gathered >= 0) continue;
    const Interval read = footprint(op, a.index[d], ranges);
    if (read.lo < 0 || read.hi > w.tensor(a.tensor).shape[d]) return true;
  }
  return false;
}

/// The loops of a reduction in the order of memory: of an input that has all of them, else the
/// result's and then those that are summed over.
std::vector<LoopId> in_memory_order(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  for (const Access& a : op.inputs) {
    std::vector<LoopId> order;
    for (const Affine& index : a.index)
      if (const auto loop = index.plain_loop();
          loop && std::ranges::find(order, *loop) == order.end())
        order.push_back(*loop);
    if (order.size() == op.loops.size()) return order;
  }
  std::vector<LoopId> order;
  for (LoopId l : op.loops)
    if (!w.is_reduction(id, l)) order.push_back(l);
  for (LoopId l : w.reduction_loops(id)) order.push_back(l);
  return order;
}

/// IsUnnestedReductionFasterThanElemental: small sums are a loop of each thread.
bool is_written(const Reduction& r) {
  const auto warp = static_cast<double>(stitching::kWarp);
  if (r.rows) return r.reduced >= warp || std::fmod(warp, r.reduced) == 0;
  return !(r.reduced < warp || (r.reduced < 2 * warp && r.kept < warp) ||
           (r.reduced < 4 * warp && r.kept < 8) || (r.reduced < 8 * warp && r.kept < 3));
}

}  // namespace

Operation operation_of(const Workload& w, OpId id, int capability) {
  const Operator& op = w.op(id);
  const double points = points_of(w, op.loops);
  Operation out;
  for (const Output& o : op.outputs) {
    const DType type = w.tensor(o.target.tensor).dtype;
    Counted c;
    count(o.value, type, capability, c);
    out.flops += c.cycles * points;
    out.code += c.code;
    if (o.combine == Combine::assign) continue;
    const double results = points / points_of(w, w.reduction_loops(id));
    out.flops += cycles_of(combining(o.combine), type, capability) * (points - results);
    ++out.code;
    ++out.splits;
  }
  for (const Access& a : op.inputs) {
    if (a.index != op.outputs.front().target.index)
      ++out.code;  // a broadcast, a slice, a transpose
    if (pads(w, op, a)) ++out.code, ++out.splits;
  }
  out.code = std::max(out.code, 1.0);
  return out;
}

Reduction reduction_of(const Workload& w, OpId id) {
  struct Run {
    bool reduced;
    double extent;
  };
  std::vector<Run> runs;
  for (LoopId l : in_memory_order(w, id)) {
    const auto extent = static_cast<double>(w.loop(l).extent);
    if (extent == 1) continue;
    const bool reduced = w.is_reduction(id, l);
    if (!runs.empty() && runs.back().reduced == reduced)
      runs.back().extent *= extent;
    else
      runs.push_back({reduced, extent});
  }
  Reduction out;
  if (runs.empty()) return out;
  out.rows = runs.back().reduced;
  (out.rows ? out.reduced : out.kept) = runs.back().extent;
  if (runs.size() > 1) (out.rows ? out.kept : out.reduced) = runs[runs.size() - 2].extent;
  if (runs.size() > 2) out.outer = runs[runs.size() - 3].extent;
  const bool reduces = std::ranges::any_of(runs, &Run::reduced);
  out.written = reduces && runs.size() <= 3 && is_written(out);
  return out;
}

}  // namespace tilewright::xlapriority
