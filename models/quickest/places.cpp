#include "models/quickest/places.h"

#include <algorithm>
#include <numeric>

#include "core/lowering/byte_products.h"
#include "core/lowering/cache_sets.h"
#include "core/lowering/product_loads.h"
#include "core/workload/access.h"

namespace tilewright::quickest {
namespace {

/// Steps of the depth, whose lines of a left operand are in use together
/// (codegen/cpu/emit_product.cpp).
constexpr std::int64_t kLeftAtOnce = 32;

/// Whether there are vectors of f32 that convert numbers of 8 bits as they load and store them.
bool vectors_of_bytes(const Rates& r) { return r.element == 4 && r.lanes > 4; }

}  // namespace

std::vector<std::int64_t> extents_of(const Schedule& s, const ScheduledKernel& k,
                                     const Ranges& ranges, OpId op) {
  std::vector<std::int64_t> extents;
  for (const Interval& i : ranges_of(s, k, ranges, op))
    extents.push_back(std::max<std::int64_t>(0, i.hi - i.lo));
  return extents;
}

std::set<LoopId> joined_loops(const Schedule& s, const ScheduledKernel& k) {
  const Workload& w = *s.workload;
  std::set<LoopId> joined;
  for (const ScheduleNode& n : k.nodes) {
    if (n.kind != NodeKind::compute) continue;
    const Operator& op = w.op(n.op);
    std::vector<Interval> whole;
    for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
    for (const Access& a : op.inputs)
      for (std::size_t d = 0; d < a.index.size(); ++d) {
        const auto extent = w.tensor(a.tensor).shape[d];
        const Interval reach = footprint(op, a.index[d], whole);
        if (a.index[d].gathered < 0 && std::max(-reach.lo, reach.hi - extent) > extent / 4 + 8)
          for (const Term& t : a.index[d].terms) joined.insert(t.loop);
      }
  }
  return joined;
}

bool Places::convolves_bytes(OpId op, const Product& x) const {
  constexpr std::int64_t kLeastRows = 4;  // codegen/cpu/emit_bytes.cpp
  if (r_.fma_bytes <= 0 || !multiplies_bytes(w_, op) || x.rows < 0) return false;
  const Operator& o = w_.op(op);
  const Access& left = o.inputs[static_cast<std::size_t>(x.left)];
  const Access& right = o.inputs[static_cast<std::size_t>(x.right)];
  if (w_.producer(left.tensor).valid() || right.index.empty()) return false;
  const LoopId rows = o.loops[static_cast<std::size_t>(x.rows)];
  const LoopId columns = o.loops[static_cast<std::size_t>(x.columns)];
  const auto& last = right.index.back().terms;
  return w_.tensor(left.tensor).values && w_.loop(rows).extent >= kLeastRows &&
         std::ranges::find(last, columns, &Term::loop) != last.end();
}

/// As KernelEmitter::take_reals has it: operands of other products, images of windows, and what
/// sums are written to. Weights of such convolutions are packed once for all runs, and nothing else
/// is read of them.
void Places::find_reals() {
  for (const ScheduleNode& n : k_.nodes) {
    if (n.kind != NodeKind::compute) continue;
    const auto product = product_of(w_, n.op);
    const bool packed = product && convolves_bytes(n.op, *product);
    if (!w_.reduction_loops(n.op).empty())
      for (const OutputUse& use : n.writes) reals_.insert(use.buffer);
    if (!product || packed) continue;
    // Plain products of 8-bit numbers read the bytes.
    if (r_.fma_bytes > 0 && !product->window && multiplies_bytes(w_, n.op)) continue;
    for (const InputUse& use : n.reads)
      if (use.buffer.valid()) reals_.insert(use.buffer);
  }
}

bool Places::in_place(BufferId id) const {
  const Buffer& b = k_.buffer(id);
  const Level& level = s_.machine->level(b.level);
  if ((b.role == BufferRole::intermediate && !b.leaves) || b.outer.valid() || b.atomic || b.sliding)
    return false;
  if (level.managed == Managed::software) return false;
  if (vectors_of_bytes(r_) && w_.tensor(b.tensor).dtype == DType::i8) return !reals_.contains(id);
  if ((converts_ && b.role != BufferRole::input) || converted(b.tensor)) return false;
  const auto known = packed_.find(id);
  return known == packed_.end() || !known->second;
}

double Places::bytes_of_box(TensorId t, const Box& box, bool home) const {
  const Tensor& tensor = w_.tensor(t);
  const double element = static_cast<double>(home ? size_of(tensor.dtype) : r_.element);
  double rows = 1, row = element;
  bool contiguous = true;
  for (int i = box.rank(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(i);
    const double n = static_cast<double>(std::max<std::int64_t>(0, box[i].hi - box[i].lo));
    if (contiguous) {
      row *= n;
      contiguous = !home || n == static_cast<double>(tensor.shape[d]);
    } else {
      rows *= n;
    }
  }
  if (row <= 0 || rows <= 0) return 0;
  return rows * (contiguous || rows == 1 ? row : std::max(row, line()));
}

std::int64_t Places::row_of(const Box& box) {
  const int d = box.rank() - 1;
  return d < 0 ? 1 : std::max<std::int64_t>(1, box[d].hi - box[d].lo);
}

ConvertedRows Places::converted_rows(const Box& box) const {
  ConvertedRows found;
  for (int i = 0; i + 1 < box.rank(); ++i)
    found.rows *= static_cast<double>(std::max<std::int64_t>(1, box[i].hi - box[i].lo));
  found.vectors = found.rows * static_cast<double>(ceil_div(row_of(box), r_.lanes));
  return found;
}

double Places::seconds_of_stores(TensorId t, std::int64_t row) const {
  const Tensor& tensor = w_.tensor(t);
  const double narrow = tensor.dtype == DType::f16 ? r_.narrow_f16 : r_.narrow_bf16;
  const double rows = static_cast<double>(tensor.elements().value) / static_cast<double>(row);
  return rows * (static_cast<double>(ceil_div(row, r_.lanes)) * narrow + r_.copy_row);
}

/// Rows that lie a multiple of a cache's sets apart share them: such a tile is packed.
double Places::rows_of_box(TensorId t, const Box& box) const {
  const Tensor& tensor = w_.tensor(t);
  double rows = 1;
  bool contiguous = true;
  for (int i = box.rank(); i-- > 0;) {
    const double n = static_cast<double>(std::max<std::int64_t>(0, box[i].hi - box[i].lo));
    if (!contiguous) rows *= n;
    contiguous = contiguous && n == static_cast<double>(tensor.shape[static_cast<std::size_t>(i)]);
  }
  return rows;
}

bool Places::shares_sets(TensorId t, const Box& box, const CacheRate& c, bool whole) const {
  constexpr std::int64_t kFollowed = 4096;  // lines; of larger boxes their rows' distance tells
  if (c.sets == 0 || box.rank() < 2) return false;
  const Tensor& tensor = w_.tensor(t);
  SetsBox lies{.shape = tensor.shape,
               .extents = {},
               .element_bytes = size_of(tensor.dtype),
               .line = static_cast<std::int64_t>(c.line),
               .ways = c.ways,
               .sets = c.sets};
  for (int i = 0; i < box.rank(); ++i)
    lies.extents.push_back(std::max<std::int64_t>(0, box[i].hi - box[i].lo));
  if (lines_of_box(lies) <= kFollowed) return !spreads_over_sets(lies, whole);
  const std::int64_t element = size_of(tensor.dtype);
  std::int64_t stride = element, rows = 1;
  const auto extent = [&](std::size_t i) {
    return box[static_cast<int>(i)].hi - box[static_cast<int>(i)].lo;
  };
  auto d = static_cast<std::size_t>(box.rank() - 1);
  std::int64_t row = extent(d) * element;
  stride *= tensor.shape[d];
  while (d > 0 && extent(d) == tensor.shape[d]) {
    --d;
    row *= extent(d);
    stride *= tensor.shape[d];
  }
  if (d == 0) return false;
  rows = extent(d - 1);
  const auto line_bytes = static_cast<std::int64_t>(c.line);
  const std::int64_t lines = row / line_bytes + 1;
  const std::int64_t period = c.sets * line_bytes;
  const std::int64_t apart = period / std::gcd(stride, period);  // rows until a set comes again
  const std::int64_t used = std::min(c.sets, std::min(apart, rows) * lines);
  const std::int64_t most = ceil_div(rows * lines, std::max<std::int64_t>(1, used));
  const std::int64_t even = ceil_div(rows * lines, c.sets);
  return most > room_of_set(even, c.ways, whole);
}

void Places::decide(NodeId load, const Box& box, const Ranges& ranges) {
  const ScheduleNode& n = k_.node(load);
  if (packed_.contains(n.buffer)) return;
  const CacheRate* level = nullptr;
  for (const CacheRate& c : r_.caches)
    if (c.boundary.ends_with("/" + s_.machine->level(k_.buffer(n.buffer).level).name)) level = &c;
  const auto kept = [&](const ReadRef& read) {
    return keeps_panels(read, ranges) || packed_once(read);
  };
  bool packed = std::ranges::none_of(n.reads_below, kept) && level != nullptr &&
                shares_sets(n.tensor, box, *level, true);
  for (const ReadRef& read : n.reads_below) {
    if (packed || r_.caches.empty()) break;
    packed = !kept(read) && shares_sets(n.tensor, panel(read, ranges), r_.caches.front(), false);
  }
  packed_[n.buffer] = packed;
}

bool Places::packed_once(const ReadRef& read) const {
  const Access& a = w_.op(read.op).inputs[static_cast<std::size_t>(read.input)];
  if (!w_.tensor(a.tensor).values) return false;
  const auto p = product_of(w_, read.op);
  return p && read.input == (p->window ? p->left : p->right);
}

std::int64_t Places::stride_at_home(const Access& a, LoopId loop) const {
  const std::vector<std::int64_t>& shape = w_.tensor(a.tensor).shape;
  std::int64_t sum = 0, inner = 1;
  for (std::size_t d = a.index.size(); d-- > 0; inner *= shape[d])
    for (const Term& t : a.index[d].terms)
      if (t.loop == loop) sum += t.coefficient * inner;
  return sum;
}

/// How the rows of a product's right operand lie at home, and the micro-kernel that reads them;
/// none: its columns do not follow one another there.
std::optional<Places::RightRows> Places::right_rows(const ReadRef& read,
                                                    const Ranges& ranges) const {
  const Operator& op = w_.op(read.op);
  const auto extents = extents_of(s_, k_, ranges, read.op);
  const auto p = product_of(w_, read.op, extents);
  if (!p || p->window || read.input != p->right) return std::nullopt;
  const Access& b = op.inputs[static_cast<std::size_t>(p->right)];
  const Tensor& tensor = w_.tensor(b.tensor);
  const auto stride_of = [&](int local) {
    return stride_at_home(b, op.loops[static_cast<std::size_t>(local)]);
  };
  if (stride_of(p->columns) != 1) return std::nullopt;
  const auto most = [&](int l) { return l < 0 ? 1 : extents[static_cast<std::size_t>(l)]; };
  const auto [height, width] =
      blocks_of(r_, static_cast<double>(most(p->rows)), static_cast<double>(most(p->columns)),
                static_cast<double>(most(p->depth)))
          .most;
  return RightRows{.apart = stride_of(p->depth) * size_of(tensor.dtype),
                   .step = width * r_.lanes * r_.element,
                   .rows = most(p->rows),
                   .group = height,
                   .depth = most(p->depth),
                   .columns = most(p->columns)};
}

bool Places::keeps_panels(const ReadRef& read, const Ranges& ranges) const {
  const auto r = right_rows(read, ranges);
  return r && tilewright::keeps_panels(r->apart, r->step, r->rows, r->group, r->depth);
}

double Places::share_of_lines(const ReadRef& read, const Ranges& ranges) const {
  const TensorId t = w_.op(read.op).inputs[static_cast<std::size_t>(read.input)].tensor;
  const auto r = right_rows(read, ranges);
  if (!r || w_.producer(t).valid() || packed_once(read) || keeps_panels(read, ranges)) return 1;
  const double element = static_cast<double>(size_of(w_.tensor(t).dtype));
  const double bytes =
      std::min(static_cast<double>(r->columns) * element, static_cast<double>(r->step));
  if (r->apart % static_cast<std::int64_t>(line()) == 0 || bytes >= static_cast<double>(r->apart))
    return 1;
  return (bytes + line() - element) / std::max(bytes, line());
}

bool Places::turns(const ReadRef& read) const {
  const Operator& op = w_.op(read.op);
  const auto p = product_of(w_, read.op);
  if (!p || p->window || read.input != p->right || r_.fma_pairs > 0 ||
      (r_.fma_bytes > 0 && multiplies_bytes(w_, read.op)))
    return false;
  const Access& b = op.inputs[static_cast<std::size_t>(p->right)];
  if (w_.tensor(b.tensor).values || w_.producer(b.tensor).valid() || b.index.empty()) return false;
  if (reads_right_as_it_lies(op, *p)) return false;
  return b.index.back().plain_loop() != op.loops[static_cast<std::size_t>(p->columns)];
}

/// As KernelEmitter::reads_right_as_it_lies has it, of an operand that changes from run to run.
bool Places::reads_right_as_it_lies(const Operator& op, const Product& p) const {
  const LoopId depth = op.loops[static_cast<std::size_t>(p.depth)];
  const auto along = [&](int input) {
    const Access& a = op.inputs[static_cast<std::size_t>(input)];
    return stride_at_home(a, depth) == 1 &&
           static_cast<std::int64_t>(size_of(w_.tensor(a.tensor).dtype)) == r_.element;
  };
  const std::int64_t rows = rows_that_meet(w_, op, op.inputs[static_cast<std::size_t>(p.right)]);
  if (!reads_along_depth(rows, w_.loop(depth).extent)) return false;
  return rows == 1 || (along(p.left) && along(p.right) && !op.outputs[0].rescale);
}

/// Columns and steps of the depth alone.
bool Places::is_one_matrix(const ReadRef& read, const Ranges& ranges) const {
  const Operator& op = w_.op(read.op);
  const auto extents = extents_of(s_, k_, ranges, read.op);
  const auto p = product_of(w_, read.op, extents);
  if (!p) return false;
  const Access& b = op.inputs[static_cast<std::size_t>(p->right)];
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
    if (l != p->columns && l != p->depth && extents[static_cast<std::size_t>(l)] > 1 &&
        indexes(b, op.loops[static_cast<std::size_t>(l)]))
      return false;
  return true;
}

/// What a micro-kernel walks of an operand while a block of the output stays in registers.
Box Places::panel(const ReadRef& read, Ranges ranges) const {
  const Operator& op = w_.op(read.op);
  const auto extents = extents_of(s_, k_, ranges, read.op);
  const auto p = product_of(w_, read.op, extents);
  if (!p || p->window) return Box(0);
  const auto most = [&](int l) {
    return l < 0 ? 1.0 : static_cast<double>(extents[static_cast<std::size_t>(l)]);
  };
  const auto [height, width] = blocks_of(r_, most(p->rows), most(p->columns), most(p->depth)).most;
  const std::size_t base = k_.range_base[read.op.index()];
  const std::int64_t steps = read.input == p->left ? kLeftAtOnce : INT64_MAX;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const int local = static_cast<int>(l);
    const std::int64_t walked = local == p->rows      ? height
                                : local == p->columns ? width * r_.lanes
                                : local == p->depth   ? std::min(extents[l], steps)
                                                      : 1;
    Interval& i = ranges[base + l];
    i.hi = std::min(i.hi, i.lo + walked);
  }
  return footprint(w_, op, op.inputs[static_cast<std::size_t>(read.input)],
                   ranges_of(s_, k_, ranges, read.op));
}

}  // namespace tilewright::quickest
