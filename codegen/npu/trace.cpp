#include "codegen/npu/trace.h"

#include <iterator>
#include <set>

namespace tilewright::npu {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void add(std::vector<IntExpr*>& all, MatrixPlace& p) {
  all.push_back(&p.place.offset);
  all.push_back(&p.pitch);
}

void add(std::vector<IntExpr*>& all, VectorPlace& p) {
  all.push_back(&p.place.offset);
  if (p.repeat_stride) all.push_back(&*p.repeat_stride);
  if (p.block_stride) all.push_back(&*p.block_stride);
}

}  // namespace

bool overlap(const TraceTouch& a, const TraceTouch& b) {
  if (a.memory != b.memory) return false;
  if (a.memory == Memory::gm) return a.tensor == b.tensor && !intersect(a.box, b.box).empty();
  return a.low < b.high && b.low < a.high;
}

void Accesses::add(std::int64_t step, Pipe pipe, const TraceTouch& touch) {
  // Whoever comes after a write comes after what that came after; likewise after a later read of
  // the same pipe.
  const auto forgets = [&](const Access& a) {
    return a.step < step && (touch.write || (!a.write && a.pipe == pipe));
  };
  if (touch.memory != Memory::gm) {
    auto& all = by_memory_[static_cast<std::size_t>(touch.memory)];
    std::erase_if(all, [&](const Local& a) {
      return touch.low <= a.low && a.high <= touch.high && forgets(a);
    });
    all.push_back({{step, pipe, touch.write}, touch.low, touch.high});
    return;
  }
  if (touch.box.empty()) return;
  auto home = at_home_.find(touch.tensor);
  if (home == at_home_.end()) home = at_home_.try_emplace(touch.tensor).first;
  Home& own = home->second;
  const auto [first, last] = own.near(touch.box);
  for (auto a = first; a != last;)
    a = forgets(a->second) && contains(touch.box, a->second.box) ? own.boxes.erase(a)
                                                                 : std::next(a);
  own.add({{step, pipe, touch.write}, touch.box});
}

std::pair<Accesses::Home::Boxes::const_iterator, Accesses::Home::Boxes::const_iterator>
Accesses::Home::near(const Box& box) const {
  if (box.rank() == 0) return {boxes.begin(), boxes.end()};
  const Interval along = box[dimension];
  return {boxes.upper_bound(along.lo - longest), boxes.lower_bound(along.hi)};
}

void Accesses::Home::add(AtHome access) {
  const Interval along = access.box.rank() == 0 ? Interval{} : access.box[dimension];
  longest = std::max(longest, along.size());
  boxes.emplace(along.lo, std::move(access));
  if (boxes.size() >= looked_at) choose_dimension();
}

void Accesses::Home::choose_dimension() {
  looked_at = 2 * boxes.size();
  const int rank = boxes.begin()->second.box.rank();
  std::size_t most = 0;
  int best = dimension;
  for (int d = 0; d < rank; ++d) {
    std::set<std::int64_t> begins;
    for (const auto& [key, a] : boxes) begins.insert(a.box[d].lo);
    if (begins.size() > most) most = begins.size(), best = d;
  }
  if (best == dimension) return;
  dimension = best;
  longest = 0;
  for (Boxes old = std::exchange(boxes, {}); auto& [key, a] : old) {
    const Interval along = a.box[dimension];
    longest = std::max(longest, along.size());
    boxes.emplace(along.lo, std::move(a));
  }
}

std::vector<IntExpr*> operands(Instruction& instruction) {
  std::vector<IntExpr*> all;
  std::visit(Overloaded{[&](Copy& c) {
                          add(all, c.to);
                          add(all, c.from);
                          all.push_back(&c.rows);
                          all.push_back(&c.columns);
                        },
                        [&](Mad& m) {
                          for (Place* p : {&m.c, &m.a, &m.b}) all.push_back(&p->offset);
                          for (IntExpr* e : {&m.m, &m.k, &m.n, &m.accumulate}) all.push_back(e);
                        },
                        [&](Vector& v) {
                          add(all, v.to);
                          for (VectorPlace& p : v.from) add(all, p);
                          all.push_back(&v.repeat);
                          if (v.mask) all.push_back(&*v.mask);
                        },
                        [&](Move& m) {
                          all.push_back(&m.to.offset);
                          all.push_back(&m.from.offset);
                          for (Move::Index& i : m.by)
                            for (IntExpr* e : {&i.value.offset, &i.step, &i.below})
                              all.push_back(e);
                        },
                        [&](Put& p) {
                          all.push_back(&p.to.offset);
                          all.push_back(&p.value);
                        },
                        [&](SetFlag& f) { all.push_back(&f.event); },
                        [&](WaitFlag& f) { all.push_back(&f.event); }, [](Barrier&) {}},
             instruction);
  return all;
}

}  // namespace tilewright::npu
