// What a plan's kernels move, phase by phase (sections 6.4 and 6.5).
#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "core/workload/bytes_read.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

class Counter {
 public:
  Counter(const Workload& w, const Device& d, const Options& o) : w_(w), d_(d), o_(o) {
    out_.tensors.resize(w.tensors().size());
  }

  PlanCount run(const Plan& plan) {
    for (const Kernel& k : plan.kernels) kernel(k);
    return std::move(out_);
  }

 private:
  struct Place {
    std::string grid;   ///< the blocks that a node is in, as text
    bool still = true;  ///< in no loop of a block
    std::int64_t first = 0, blocks = 1;
    std::map<LoopId, std::int64_t> cuts = {};    ///< what one iteration of the loops around has
    std::map<LoopId, std::int64_t> turns = {};   ///< of loops that a block walks
    std::map<LoopId, std::int64_t> shared = {};  ///< blocks by the loops that they share out
  };
  /// Products that a block makes together, by where they stand.
  using Products = std::map<std::pair<std::int64_t, std::string>, lowering::ProductTile>;

  void kernel(const Kernel& k) {
    out_.kernels.emplace_back();
    now_ = &out_.kernels.back();
    made_.clear();
    has_.clear();
    kept_.clear();
    zeroes_ = false;
    blocks_ = 1;
    now_->seconds = o_.launch_us * 1e-6;
    warps_ = k.launch.warps.value_or(0);
    own_.clear();
    said_.clear();
    find_own(k.tree);
    implied_ = k.level == "registers";
    begin_phase();
    const auto part = [&](const Node& n) {
      if (n.kind == Node::Kind::sync && n.name == "grid") {
        end_phase();
        begin_phase();
      } else {
        visit(n, {.grid = n.kind == Node::Kind::pack ? "" : "0: "});
      }
    };
    if (k.tree.kind == Node::Kind::sequence)
      for (const Node& n : k.tree.children) part(n);
    else
      part(k.tree);
    end_phase();
    now_->seconds += (now_->phases - 1) * barrier_seconds(d_, o_, blocks_);
    if (zeroes_) now_->seconds += o_.launch_us * 1e-6;  // zeroing is a launch of its own
    now_->kept.assign(kept_.begin(), kept_.end());
  }

  /// Operators that the kernel computes, and tensors that it says where it stores.
  void find_own(const Node& n) {
    if (n.kind == Node::Kind::compute)
      if (const auto id = w_.find_op(n.name)) own_.insert(*id);
    if (n.kind == Node::Kind::store)
      if (const auto t = w_.find_tensor(n.name)) said_.insert(*t);
    for (const Node& c : n.children) find_own(c);
  }

  void begin_phase() {
    ++now_->phases;
    loads_.clear();
    products_.clear();
    flops_ = 0;
    stored_ = Bytes();
  }

  void end_phase() {
    Bytes read;
    for (const auto& [tensor, load] : loads_) {
      if (load.readers.empty()) continue;
      const std::vector<OpId> ops(load.readers.begin(), load.readers.end());
      const Bytes bytes = bytes_read(w_, tensor, ops);
      out_.tensors[tensor.index()].first += bytes;
      read += bytes;
    }
    now_->read += read;
    now_->written += stored_;
    now_->flops += flops_;
    const double moved = static_cast<double>((read + stored_).value) / d_.memory;
    now_->seconds += std::max({moved, flops_ / d_.flops, product_seconds()});
  }

  /// Nests on other blocks run beside one another, those of the same blocks one after the other.
  /// Where all are more than the multiprocessors, each shares them with the others.
  double product_seconds() const {
    std::int64_t all = 0;
    for (const auto& [place, tile] : products_) all = std::max(all, place.first + tile.blocks);
    std::map<std::int64_t, double> by_first;
    for (const auto& [place, tile] : products_) {
      lowering::ProductTile t = tile;
      if (all > d_.sms) t.blocks = all;
      if (lowering::estimate(d_.product, t)) by_first[place.first] += t.seconds;
    }
    double most = 0;
    for (const auto& [first, seconds] : by_first) most = std::max(most, seconds);
    return most;
  }

  void product(OpId id, const Place& at) {
    const Operator& op = w_.op(id);
    std::vector<std::int64_t> sizes;
    std::int64_t steps = 1;
    std::string where = at.grid;
    for (LoopId l : op.loops) {
      sizes.push_back(range_of(l, at));
      const auto turns = at.turns.find(l);
      if (turns == at.turns.end()) continue;
      steps *= turns->second;
      where += formatted("{}/{} ", l.index(), sizes.back());
    }
    lowering::ProductTile t = product_in_tiles(w_, id, sizes);
    t.steps = steps;
    t.blocks = at.blocks;
    t.warps = warps_;
    const auto [seen, is_new] = products_.emplace(std::pair(at.first, where), t);
    if (is_new) return;
    seen->second.results += t.results;
    seen->second.operands.push_back(t.operands.back());  // the other one is shared
  }

  void visit(const Node& n, Place at) {
    blocks_ = std::max(blocks_, at.first + at.blocks);
    switch (n.kind) {
      case Node::Kind::loop:
        if (n.binding == Binding::grid) {
          at.grid += formatted("{}/{} ", n.name, n.step);
          if (const auto l = w_.find_loop(n.name); l && n.step > 0) {
            at.shared[*l] = ceil_div(w_.loop(*l).extent, n.step);
            at.blocks *= at.shared[*l];
          }
        } else if (n.binding == Binding::seq || n.binding == Binding::unroll) {
          at.still = false;
          if (const auto l = w_.find_loop(n.name); l && n.step > 0) {
            const auto [turns, is_new] = at.turns.emplace(*l, 1);
            turns->second *= ceil_div(range_of(*l, at), n.step);
          }
        }
        if (const auto l = w_.find_loop(n.name); l && n.step > 0) at.cuts[*l] = n.step;
        [[fallthrough]];
      case Node::Kind::sequence:
        for (const Node& c : n.children) visit(c, at);
        break;
      case Node::Kind::pack: {
        std::int64_t next = at.first;
        for (const Node& c : n.children) {
          Place in = at;
          in.first = n.first_block.value_or(0) + c.first_block.value_or(next);
          in.grid = at.grid + formatted("{}: ", in.first);
          visit(c, in);
          next = in.first + blocks_in(c);
        }
        break;
      }
      case Node::Kind::load:
        if (const auto t = w_.find_tensor(n.name)) loads_[*t].places.push_back(at);
        break;
      case Node::Kind::compute:
        if (const auto id = w_.find_op(n.name)) compute(*id, at);
        break;
      case Node::Kind::store:
        if (const auto t = w_.find_tensor(n.name)) {
          const Bytes bytes = stored(*t, n.atomic, at);
          out_.tensors[t->index()].second += bytes;
          stored_ += bytes;
        }
        break;
      case Node::Kind::drop:
        if (const auto t = w_.find_tensor(n.name)) has_.erase(*t);
        break;
      case Node::Kind::sync:
        break;
    }
  }

  std::int64_t range_of(LoopId l, const Place& at) const {
    const auto cut = at.cuts.find(l);
    const std::int64_t all = w_.loop(l).extent;
    return cut == at.cuts.end() ? all : std::min(cut->second, all);
  }

  /// The tensor; where blocks add up parts of it, each part and the zeros before them.
  Bytes stored(TensorId t, bool atomic, const Place& at) {
    const OpId writer = w_.producer(t);
    std::int64_t times = 1;
    if (atomic && writer.valid()) {
      for (const auto& [loop, blocks] : at.shared)
        if (w_.local_index(writer, loop) >= 0 && w_.is_reduction(writer, loop)) times *= blocks;
      ++times;
      zeroes_ = true;
    }
    return Bytes(times * w_.tensor(t).bytes().value);
  }

  void compute(OpId id, const Place& at) {
    const Operator& op = w_.op(id);
    if (std::ranges::find(now_->operators, op.name) == now_->operators.end())
      now_->operators.push_back(op.name);
    flops_ += (w_.is_contraction(id) ? 2.0 : 1.0) * static_cast<double>(w_.operations(id).value);
    if (w_.is_contraction(id) && w_.op(id).inputs.size() == 2) product(id, at);
    for (const Access& a : op.inputs) {
      const auto load = loads_.find(a.tensor);
      const bool loaded =
          load != loads_.end() && std::ranges::any_of(load->second.places, [&](const Place& p) {
            return at.grid.starts_with(p.grid);
          });
      const bool own = own_.contains(w_.producer(a.tensor));
      if (!loaded && !is_gather(a) &&
          (own || !implied_)) {  // on chip: made by these blocks, now or in a phase before
        if (made_.contains(a.tensor) && made_.at(a.tensor) != now_->phases)
          kept_.insert(w_.tensor(a.tensor).name);
        continue;
      }
      if (implied_ && !loaded) {
        loads_[a.tensor].readers.insert(id);
        continue;
      }
      const bool still = loaded && load->second.places.back().still;
      const std::string tile = formatted("{} {}{}", a.tensor.index(), element_text(a), at.grid);
      if (still && holds(a.tensor, tile, at)) continue;
      loads_[a.tensor].readers.insert(id);
    }
    for (const Output& o : op.outputs) {
      const TensorId t = o.target.tensor;
      made_[t] = now_->phases;
      if (!implied_ || said_.contains(t) || !leaves(t)) continue;
      const Bytes bytes = w_.tensor(t).bytes();
      out_.tensors[t.index()].second += bytes;
      stored_ += bytes;
    }
  }

  bool leaves(TensorId t) const {
    return w_.is_output(t) ||
           std::ranges::any_of(w_.consumers(t), [&](OpId r) { return !own_.contains(r); });
  }

  std::int64_t blocks_in(const Node& n) const {
    std::int64_t most = 1;
    for (const Node& c : n.children) most = std::max(most, blocks_in(c));
    const auto l = n.kind == Node::Kind::loop && n.binding == Binding::grid ? w_.find_loop(n.name)
                                                                            : std::nullopt;
    return l && n.step > 0 ? most * ceil_div(w_.loop(*l).extent, n.step) : most;
  }

  /// Whether these blocks have the tile; now they do. Another tile of the tensor takes its place.
  bool holds(TensorId t, const std::string& tile, const Place& at) {
    std::vector<Held>& all = has_[t];
    for (Held& h : all)
      if (h.tile == tile) {
        if (h.phase != now_->phases) kept_.insert(w_.tensor(t).name);
        h.phase = now_->phases;
        return true;
      }
    std::erase_if(
        all, [&](const Held& h) { return at.first < h.end && h.first < at.first + at.blocks; });
    all.push_back({at.first, at.first + at.blocks, tile, now_->phases});
    return false;
  }

  /// The part of the access that no loop moves: "3,*5," of W[3,j+5].
  static std::string element_text(const Access& a) {
    std::string out;
    for (const Affine& f : a.index)
      out += (f.terms.empty() ? "" : "*") + std::to_string(f.offset) + ",";
    return out;
  }

  /// A tile that blocks have, and the phase that used it last.
  struct Held {
    std::int64_t first = 0, end = 0;
    std::string tile;
    int phase = 0;
  };
  struct Load {
    std::vector<Place> places;
    std::set<OpId> readers;
  };
  const Workload& w_;
  const Device& d_;
  const Options& o_;
  PlanCount out_;
  KernelCount* now_ = nullptr;
  std::map<TensorId, Load> loads_;  ///< of this phase
  std::map<TensorId, int> made_;    ///< of this kernel: the phase
  std::map<TensorId, std::vector<Held>> has_;
  std::set<std::string> kept_;
  std::set<OpId> own_;       ///< of this kernel
  std::set<TensorId> said_;  ///< that it says where it stores
  bool implied_ = false;     ///< its loads and stores are no nodes
  Products products_;        ///< of this phase
  int warps_ = 0;            ///< of this kernel; 0: not said
  std::int64_t blocks_ = 1;  ///< of this kernel
  bool zeroes_ = false;      ///< what its blocks add to
  double flops_ = 0;
  Bytes stored_;
};

}  // namespace

double PlanCount::seconds() const {
  double sum = 0;
  for (const KernelCount& k : kernels) sum += k.seconds;
  return sum;
}

Bytes PlanCount::read() const {
  Bytes sum;
  for (const KernelCount& k : kernels) sum += k.read;
  return sum;
}

PlanCount count(const Workload& w, const Device& d, const Options& o, const Plan& plan) {
  return Counter(w, d, o).run(plan);
}

}  // namespace tilewright::souffle
