// Where a row's values are between passes over it: registers, shared memory, home.
#include "core/base/format.h"
#include "models/stitching/bound_writer.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kKept = 160;    // of all, of at most 255 registers
constexpr std::int64_t kWorking = 24;  // registers beside the values that are kept (assumed)

}  // namespace

bool BoundTreeWriter::same_units(const Pass& p, const Access& a, const Pass& q, const Access& b) {
  // A row has one value of what is no loop within it: 256*b+i has an element for each i.
  const auto plain = [&p](const Affine& i) {
    std::size_t within = 0;
    for (const Term& t : i.terms)
      if (p.loops.has(t.loop)) within += t.coefficient == 1 ? 1 : 2;
    return within <= 1;
  };
  return p.shares == q.shares && a.index == b.index && std::ranges::all_of(a.index, plain);
}

void BoundTreeWriter::make_room_for_sums(const Pass& p, int v, const Access& made) {
  const LoopSet reduced = g_.vertex(v).reduced & p.loops;
  if (reduced.empty()) return;
  const std::int64_t sums = sums_of(p.shares, loops_of(made), reduced);
  if (sums > lowering::kArrayValues)
    refused_ =
        formatted("a thread would sum up {} values of {}", sums, w_.tensor(made.tensor).name);
  if (warps_of(p.shares, reduced) == 1) return;
  shared_ += sums * (threads_ / kWarp) * (lanes_of(p.shares, reduced) == kWarp ? 1 : kWarp) *
             size_of(w_.tensor(made.tensor).dtype);
}

int BoundTreeWriter::dimension(const Pass& p, const Access& a) const {
  int found = -1;
  for (std::size_t i = 0; i < a.index.size(); ++i) {
    const auto plain = a.index[i].plain_loop();
    const bool has = std::ranges::any_of(a.index[i].terms, [&](const Term& t) {
      return static_cast<int>(t.loop.index()) == p.bound;
    });
    if (!has && a.index[i].gathered < 0) continue;
    if (found != -1 || !plain) return -2;
    found = static_cast<int>(i);
  }
  return found;
}

std::int64_t BoundTreeWriter::share_of(const Pass& p, const Access& a) const {
  const LoopSet loops = loops_of(a) & p.loops;
  if (spread()) return values_of(p.shares, loops);
  std::int64_t n = 1;
  for (int l : ordered(loops)) {
    if (l != p.bound) {
      n *= extent(l);
      continue;
    }
    if (bound_ == Binding::thread && in_warps_ && !in_grid_) {
      n *= run_of(p) / kWarp;
      continue;
    }
    const std::int64_t units = bound_ == Binding::lane     ? kWarp
                               : bound_ == Binding::thread ? threads_
                                                           : 1;
    n *= ceil_div(ceil_div(extent(l), p.step), units) * p.step;
  }
  return n;
}

std::int64_t BoundTreeWriter::row_bytes(const Access& a) const {
  std::int64_t n = size_of(w_.tensor(a.tensor).dtype);
  for (int l : ordered(loops_of(a) & inner_)) n *= extent(l);
  return n;
}

BoundTreeWriter::Where BoundTreeWriter::keep(std::int64_t share, std::int64_t bytes, bool aligned) {
  const std::int64_t most = std::min(kKept, d_.registers_per_sm / threads_ - kWorking);
  if (aligned && share <= lowering::kArrayValues && kept_ + share <= most) {
    kept_ += share;
    return Where::registers;
  }
  const std::int64_t rows = bound_ == Binding::lane  ? threads_ / kWarp
                            : bound_ == Binding::seq ? threads_
                                                     : 1;
  if (shared_ + bytes * rows > d_.shared_per_sm) return Where::nowhere;
  shared_ += bytes * rows;
  return Where::shared;
}

void BoundTreeWriter::place_values(Scheme scheme) {
  place_inputs(scheme);
  for (std::size_t p = 0; p < passes_.size(); ++p)
    for (int v : passes_[p].vertices)
      for (const Output& o : op(v).outputs) place_output(scheme, p, v, o.target);
}

std::map<TensorId, std::vector<BoundTreeWriter::Use>> BoundTreeWriter::home_reads() const {
  std::map<TensorId, std::vector<Use>> reads;
  for (std::size_t p = 0; p < passes_.size(); ++p)
    for (int v : passes_[p].vertices)
      for (const Access& a : op(v).inputs)
        if (!made_here(a.tensor) && !is_gather(a)) reads[a.tensor].push_back({p, &a});
  return reads;
}

bool BoundTreeWriter::says_where(TensorId t) const {
  return std::ranges::any_of(c_.vertices, [&](int v) {
    return std::ranges::any_of(op(v).inputs, [&](const Access& a) {
      return std::ranges::any_of(a.index, [&](const Affine& i) {
        return i.gathered >= 0 && op(v).inputs[static_cast<std::size_t>(i.gathered)].tensor == t;
      });
    });
  });
}

bool BoundTreeWriter::made_here(TensorId t) const {
  const OpId producer = w_.producer(t);
  return producer.valid() &&
         std::ranges::any_of(c_.vertices, [&](int u) { return g_.vertex(u).op == producer; });
}

bool BoundTreeWriter::shifted(TensorId t) const {
  if (bound_ == Binding::seq) return false;
  return std::ranges::any_of(c_.vertices, [&](int v) {
    const Access* first = nullptr;
    return std::ranges::any_of(op(v).inputs, [&](const Access& a) {
      if (a.tensor != t || is_gather(a)) return false;
      if (first == nullptr) first = &a;
      return a.index != first->index;
    });
  });
}

bool BoundTreeWriter::apart_in_row(const Access& a, const Access& b) const {
  bool apart = false;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine &x = a.index[d], &y = b.index[d];
    if (x.terms != y.terms || x.terms.size() > 1) return false;
    if (!x.terms.empty() && x.terms.front().coefficient != 1) return false;
    const std::int64_t range =
        x.terms.empty() ? 1 : extent(static_cast<int>(x.terms.front().loop.index()));
    apart = apart || std::abs(x.offset - y.offset) >= range;
  }
  return apart;
}

std::int64_t BoundTreeWriter::slices(const std::vector<Use>& uses) const {
  std::vector<const Access*> parts;
  for (const Use& u : uses) {
    const Pass &p = passes_[u.pass], &first = passes_[uses.front().pass];
    if (p.bound < 0 || p.bound != first.bound || p.step != first.step || p.shares != first.shares ||
        !loops_of(*u.access).has(p.bound))
      return 0;
    if (std::ranges::any_of(parts, [&](const Access* a) { return a->index == u.access->index; }))
      continue;
    if (std::ranges::any_of(parts, [&](const Access* a) { return !apart_in_row(*a, *u.access); }))
      return 0;
    parts.push_back(u.access);
  }
  return static_cast<std::int64_t>(parts.size());
}

bool BoundTreeWriter::reads_slices() const {
  return std::ranges::any_of(c_.vertices, [&](int v) {
    const auto& inputs = op(v).inputs;
    return std::ranges::any_of(inputs, [&](const Access& a) {
      return !made_here(a.tensor) && !is_gather(a) &&
             std::ranges::any_of(inputs, [&](const Access& b) {
               return a.tensor == b.tensor && !is_gather(b) && apart_in_row(a, b);
             });
    });
  });
}

std::int64_t BoundTreeWriter::hull_bytes(TensorId t, const std::vector<Use>& uses) const {
  const Tensor& tensor = w_.tensor(t);
  std::int64_t n = size_of(tensor.dtype);
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    std::int64_t low = INT64_MAX, high = INT64_MIN;
    for (const Use& u : uses) {
      const Affine& index = u.access->index[d];
      std::int64_t last = index.offset;
      for (const Term& term : index.terms)
        if (inner_.has(term.loop))
          last += std::abs(term.coefficient) * (extent(static_cast<int>(term.loop.index())) - 1);
      low = std::min(low, index.offset);
      high = std::max(high, last);
    }
    n *= std::min(tensor.shape[d], high - low + 1);
  }
  return n;
}

void BoundTreeWriter::place_inputs(Scheme scheme) {
  for (const auto& [t, uses] : home_reads()) {
    if (!c_.partial.empty() && place_for_run(t, uses)) continue;
    // Each thread reads its window for itself: its neighbours' are in L1.
    if (scheme == Scheme::thread &&
        std::ranges::any_of(uses, [&](const Use& u) { return is_window(*u.access); }))
      continue;
    const Use& first = uses.front();
    bool several = false, aligned = true, alike = false;
    std::int64_t share = 0;
    for (const Use& u : uses) {
      const Pass& p = passes_[u.pass];
      several |= u.pass != first.pass;
      share = std::max(share, share_of(p, *u.access));
      if (spread()) {
        aligned &= same_units(passes_[first.pass], *first.access, p, *u.access);
        alike |= !(p.loops & ~loops_of(*u.access)).empty() || first.pass > 0;
        continue;
      }
      const int d = dimension(p, *u.access);
      aligned &= d != -2 && d == dimension(passes_[first.pass], *first.access) &&
                 p.step == passes_[first.pass].step;
      alike |= d == -1 && p.bound >= 0 && bound_ != Binding::seq;
    }
    // What one operator reads in two places: parts of a row that do not overlap each thread loads
    // for itself; else the block loads the box around them for all.
    const bool shift = shifted(t);
    const std::int64_t parts = shift ? slices(uses) : 0;
    if (parts > 0) share *= parts, aligned = true;
    const bool apart = shift && parts == 0;
    if (!shift && !several && !(alike && (share <= lowering::kAlikeValues || says_where(t))))
      continue;
    switch (
        keep(share, shift ? hull_bytes(t, uses) : row_bytes(*first.access), aligned && !apart)) {
      case Where::registers:
        // In a run of rows what all lanes wait for comes after what each loads for itself.
        loads_.insert(!c_.partial.empty() && !alike ? loads_.begin() : loads_.end(),
                      load(w_.tensor(t).name, "registers"));
        break;
      case Where::shared:
        loads_.push_back(load(w_.tensor(t).name, "shared"));
        break;
      case Where::nowhere:
        refused_ = formatted("a row of {} fits neither a thread's registers nor shared memory",
                             w_.tensor(t).name);
    }
  }
}

void BoundTreeWriter::place_output(Scheme scheme, std::size_t at, int v, const Access& made) {
  const Pass& p = passes_[at];
  const std::string& tensor = w_.tensor(made.tensor).name;
  if (in(c_.partial, v)) return place_partial(p, made);
  bool read_here = false, later = false, aligned = true;
  const int d = dimension(p, made);
  for (std::size_t q = 0; q < passes_.size(); ++q)
    for (int r : passes_[q].vertices)
      for (const Access& a : op(r).inputs) {
        if (a.tensor != made.tensor) continue;
        read_here = true;
        if (q == at) continue;
        later = true;
        if (spread())
          aligned &= (loops_of(made) & p.loops).empty() || same_units(p, made, passes_[q], a);
        else
          aligned &=
              d == -1 || (d >= 0 && dimension(passes_[q], a) == d && passes_[q].step == p.step);
      }
  const LoopSet over = spread() ? p.loops : p.bound < 0 ? LoopSet() : bit(p.bound);
  const bool joined = bound_ != Binding::seq && !(g_.vertex(v).reduced & over).empty();
  const std::string scope = bound_ == Binding::lane ? "warp" : "block";
  if (spread()) make_room_for_sums(p, v, made);
  if (joined && !read_here) after_[at].push_back(store(tensor));
  if (!later) return;
  const bool sub_root = std::ranges::any_of(
      s_.groups, [&](const Group& group) { return group.root == v && group.sub_root; });
  // A value that a sub-root hands on by block composition is in shared memory (figure 3).
  const bool asks_shared = sub_root && scheme == Scheme::block;
  Where where = keep(share_of(p, made), row_bytes(made), aligned && !asks_shared);
  if (where == Where::nowhere) {
    refused_ = formatted("a row of {} fits neither a thread's registers nor shared memory", tensor);
    return;
  }
  if (where == Where::shared) out_.pins[tensor].level = "shared";
  if ((joined || where == Where::shared) && bound_ != Binding::seq) syncs_[at] = scope;
}

/// Whether registers have room for what a thread keeps of two rows: only then are the next row's
/// loads under way while it goes through one.
bool BoundTreeWriter::two_rows_fit() const {
  std::int64_t row = 0;
  for (const auto& [t, uses] : home_reads()) {
    std::int64_t share = 0;
    for (const Use& u : uses)
      if (!(loops_of(*u.access) & c_.rows).empty())
        share = std::max(share, share_of(passes_[u.pass], *u.access));
    if (uses.size() > 1) row += share;
  }
  const std::int64_t words = w_.dtype() == DType::f64 ? 2 : 1;
  return 2 * words * row + kWorking <= d_.registers_per_sm / threads_;
}

bool BoundTreeWriter::place_for_run(TensorId t, const std::vector<Use>& uses) {
  LoopSet loops;
  std::int64_t share = 0;
  for (const Use& u : uses) {
    loops |= loops_of(*u.access);
    share = std::max(share, share_of(passes_[u.pass], *u.access));
    // Elsewhere than where the loops say, or of other elements in each pass.
    if (u.access->index != uses.front().access->index || says_where(t)) return false;
  }
  const std::int64_t most = std::min(kKept, d_.registers_per_sm / threads_ - kWorking);
  if (s_.rows_in_turn == 1) return false;
  if ((loops & c_.rows).empty() && share <= lowering::kArrayValues && kept_ + share <= most) {
    kept_ += share;
    run_loads_.push_back(load(w_.tensor(t).name, "registers"));
    return true;
  }
  if (bound_ != Binding::thread || !(loops & inner_).empty()) return false;
  if (!two_rows_fit()) {
    kept_ += share;
    loads_.push_back(load(w_.tensor(t).name, "registers"));
    return true;
  }
  const std::int64_t bytes = s_.rows_per_block * size_of(w_.tensor(t).dtype);
  if (shared_ + bytes > d_.shared_per_sm) return false;
  shared_ += bytes;
  run_loads_.push_back(load(w_.tensor(t).name, "shared"));
  return true;
}

void BoundTreeWriter::place_partial(const Pass& p, const Access& made) {
  const std::int64_t share = share_of(p, made);
  kept_ += share;
  if (share > lowering::kArrayValues)
    refused_ = formatted("a thread would sum up {} values of {}: at most {}", share,
                         w_.tensor(made.tensor).name, lowering::kArrayValues);
}

}  // namespace tilewright::stitching
