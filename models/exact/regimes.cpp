#include "models/exact/regimes.h"

namespace tilewright::exact_model {

namespace {

/// How `access` contributes to `hull`, the smallest box of it and others. A side of the hull that
/// the same access reaches at both ends of a stretch, clipped alike, moves evenly in between: the
/// others are behind at both ends, and so all along.
void note_access(Place at, OpId op_id, const Access& access, const Ranges& r, const Box& hull,
                 Signature& sig) {
  const Workload& w = *at.s.workload;
  const Operator& op = w.op(op_id);
  const auto ranges = ranges_of(at.s, at.k, r, op_id);
  for (const Interval& range : ranges) sig.note(range.size());
  const std::vector<std::int64_t>& shape = w.tensor(access.tensor).shape;
  for (std::size_t d = 0; d < access.index.size(); ++d) {
    const Interval whole{0, shape[d]};
    const Interval raw = footprint(op, access.index[d], ranges);
    const Interval clipped = intersect(raw, whole);
    // The further of two sides is the same one where they are equal: no matter whether they are.
    const std::int64_t sides = (raw.lo < whole.lo) | (raw.hi > whole.hi) << 1 |
                               (raw.lo < whole.hi) << 2 | (raw.hi > whole.lo) << 3 |
                               clipped.empty() << 4;
    sig.compare(clipped, hull[static_cast<int>(d)], sides);
  }
}

const Access& input_of(Place at, const ReadRef& read) {
  return at.s.workload->op(read.op).inputs[static_cast<std::size_t>(read.input)];
}

const Access& output_of(Place at, OpId op, int output) {
  return at.s.workload->op(op).outputs[static_cast<std::size_t>(output)].target;
}

}  // namespace

Box new_part(const Box& held, const Box& now, Signature& sig) {
  sig.note(held.rank());
  for (int d = 0; d < now.rank() && d < held.rank(); ++d) {
    sig.compare(held[d], now[d]);
    sig.compare(held[d].lo, now[d].hi);
    sig.compare(held[d].hi, now[d].lo);
    sig.note(held[d].size());
  }
  const Box part = tilewright::new_part(held, now);
  sig.sizes(part);
  return part;
}

namespace {

/// The ranges after inferences still to come below; `ahead` holds them where there are any.
const Ranges& look_ahead(Place at, const std::vector<Inference>& inferences, const Ranges& r,
                         Ranges& ahead, Signature& sig) {
  if (inferences.empty()) return r;
  ahead = r;
  for (const Inference& i : inferences) infer(at, i, ahead, nullptr, sig);
  return ahead;
}

}  // namespace

Box infer(Place at, const Inference& inference, Ranges& r, const Box* held, Signature& sig) {
  const std::size_t base = at.k.range_base[inference.producer.index()];
  const std::size_t loops = at.s.workload->op(inference.producer).loops.size();
  const std::vector<Interval> own(r.begin() + static_cast<std::ptrdiff_t>(base),
                                  r.begin() + static_cast<std::ptrdiff_t>(base + loops));
  Ranges copy;  // readers' ranges are not the producer's: without one, r has them before and after
  const Ranges& before = look_ahead(at, inference.lookahead, r, copy, sig);
  const Box region = tilewright::infer(at.s, at.k, inference, r, held);
  for (const ReadRef& read : inference.reads)
    note_access(at, read.op, input_of(at, read), before, region, sig);
  sig.sizes(region);
  if (inference.sliding && held != nullptr) new_part(*held, region, sig);
  for (std::size_t i = base; i < base + loops; ++i) {
    sig.note(r[i].size());
    // Merging takes the further of two sides.
    if (inference.merge) sig.compare(own[i - base], r[i]);
  }
  return region;
}

Box load_box(Place at, NodeId load, const Ranges& r, Signature& sig) {
  const ScheduleNode& n = at.k.node(load);
  Ranges copy;
  const Ranges& ahead = look_ahead(at, n.lookahead, r, copy, sig);
  const Box box = tilewright::load_box(at.s, at.k, load, r);
  for (const ReadRef& read : n.reads_below)
    note_access(at, read.op, input_of(at, read), ahead, box, sig);
  sig.sizes(box);
  return box;
}

Box tile_of(Place at, const Buffer& b, const Ranges& r, Signature& sig) {
  Ranges copy;
  const Ranges& ahead = look_ahead(at, b.lookahead, r, copy, sig);
  const Box box = tilewright::tile_of(at.s, at.k, b, r);
  for (const ReadRef& read : b.reads) note_access(at, read.op, input_of(at, read), ahead, box, sig);
  if (b.reads.empty())
    for (const auto& [op, output] : b.writes)
      note_access(at, op, output_of(at, op, output), ahead, box, sig);
  sig.sizes(box);
  return box;
}

Box write_box(Place at, OpId op, int output, const Ranges& r, Signature& sig) {
  const Box box = tilewright::write_box(at.s, at.k, op, output, r);
  note_access(at, op, output_of(at, op, output), r, box, sig);
  sig.sizes(box);
  return box;
}

}  // namespace tilewright::exact_model
