#include "codegen/npu/trace.h"

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

namespace {

bool covers(const TraceTouch& outer, const TraceTouch& inner) {
  if (outer.memory == Memory::gm)
    return outer.tensor == inner.tensor && contains(outer.box, inner.box);
  return outer.low <= inner.low && inner.high <= outer.high;
}

}  // namespace

void Accesses::add(Access access) {
  auto& all = by_memory_[static_cast<std::size_t>(access.touch.memory)];
  // Whoever comes after a write comes after what that came after; likewise after a later read of the
  // same pipe.
  std::erase_if(all, [&](const Access& a) {
    return a.step < access.step && covers(access.touch, a.touch) &&
           (access.touch.write || (!a.touch.write && a.pipe == access.pipe));
  });
  all.push_back(std::move(access));
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
                        [&](SetFlag& f) { all.push_back(&f.event); },
                        [&](WaitFlag& f) { all.push_back(&f.event); }, [](Barrier&) {}},
             instruction);
  return all;
}

}  // namespace tilewright::npu
