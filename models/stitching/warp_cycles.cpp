// L_warp of a written schedule: the latency-evaluator of the paper's section 4.3 on what the
// threads of its kernel do.
#include <cmath>
#include <map>
#include <string>

#include "core/lowering/gpu/thread_program.h"
#include "models/stitching/overlap.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

using lowering::Read;
using lowering::Step;
using lowering::Storage;
using lowering::ThreadProgram;
using lowering::Value;
using lowering::Write;

class WarpCycles {
 public:
  WarpCycles(const Graph& g, std::span<const int> vertices, const Device& d, const ThreadProgram& p)
      : d_(d), p_(p) {
    for (int v : vertices) vertices_[g.workload().op(g.vertex(v).op).name] = &g.vertex(v);
  }

  double of(const std::vector<Step>& steps) const {
    double cycles = 0;
    for (const Step& s : steps) cycles += of(s);
    return cycles;
  }

 private:
  double size(const std::vector<int>& dims) const {
    return static_cast<double>(p_.size_of_dims(dims));
  }
  /// Accesses of a thread that moves a value between home and registers.
  double moves(const Step& s) const {
    const std::int64_t all = p_.strips_of(s.dims, s.strip);
    return static_cast<double>(s.shared_out ? ceil_div(all, p_.warps) : all);
  }

  double of(const Step& s) const {
    using Kind = Step::Kind;
    switch (s.kind) {
      case Kind::loop:
        return static_cast<double>(p_.index(s.index).count) * of(s.body);
      case Kind::blocks:
      case Kind::parts:
      case Kind::part:
        return of(s.body);
      case Kind::declare:
      case Kind::put:  // its stage has it
      case Kind::start:
        return 0;
      case Kind::hold:
      case Kind::keep:
        return size(s.dims) * d_.shared;
      case Kind::load:
      case Kind::store:
        return moves(s) * d_.global;
      case Kind::spread:
        return size(s.dims) * d_.shuffle;
      case Kind::stage:
        return size(s.dims) * static_cast<double>(p_.turns_of(s)) * (d_.global + d_.shared);
      case Kind::compute:
        return compute(s);
      case Kind::lanes: {
        double steps = 0;
        for (int id : s.units) steps += std::log2(p_.lanes_of(id));
        return size(s.dims) * steps * (d_.shuffle + d_.light);
      }
      case Kind::exchange:
        return exchange(s);
      case Kind::barrier:
        return s.warp ? 0 : d_.barrier;
    }
    return 0;
  }

  /// A warp writes its parts of all sums; of its own, or of all, it adds up those of a group.
  double exchange(const Step& s) const {
    double cycles = d_.barrier;
    for (const Step::Joined& j : s.joined)
      cycles += size(j.dims) * d_.shared +
                static_cast<double>(p_.joined_by_warp(j) * p_.group_of(j)) * (d_.shared + d_.light);
    return cycles;
  }

  double compute(const Step& s) const {
    const Vertex& x = *vertices_.at(p_.workload->op(p_.kernel->node(s.node).op).name);
    const double points = size(s.dims);
    double cycles = points * (static_cast<double>(x.light) * d_.light +
                              static_cast<double>(x.expensive) * d_.expensive);
    for (const Read& r : s.reads)
      if (r.from == Read::From::shared)
        cycles += points * d_.shared;
      else if (r.from != Read::From::registers && r.from != Read::From::held)
        cycles += static_cast<double>(p_.loads_of(s, r)) * d_.global;
    for (const Write& w : s.writes) {
      const Value& v = p_.value(w.value);
      if (w.sum || v.storage == Storage::registers) continue;
      if (v.storage == Storage::shared) cycles += points * d_.shared;
      if (v.storage == Storage::direct || w.leaves) cycles += points * d_.global;
    }
    return cycles;
  }

  const Device& d_;
  const ThreadProgram& p_;
  std::map<std::string, const Vertex*> vertices_;
};

}  // namespace

double warp_cycles(const Graph& g, std::span<const int> vertices, const Device& d,
                   const ThreadProgram& p) {
  return WarpCycles(g, vertices, d, p).of(p.steps);
}

}  // namespace tilewright::stitching
