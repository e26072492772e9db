// Casts: a value that is rounded to another type is stored in it, by the operator that computes it
// where nothing else reads it.
#include <algorithm>

#include "core/workload/import/onnx_builder.h"

namespace tilewright::onnx {
namespace {

/// Whether each number of the one type is a number of the other.
bool holds_all(std::int32_t wide, std::int32_t narrow) {
  if (wide == narrow || wide == kDouble) return true;
  return wide == kFloat && (narrow == kFloat16 || narrow == kBfloat16);
}

}  // namespace

Value Builder::rounded(const std::string& name, const Value& v, std::int32_t type) {
  const bool rounds = is_float(type) && is_float(v.type) && !holds_all(type, v.type);
  const bool counts = is_integer(type) && v.type == kBool && v.view &&
                      tensors_[static_cast<std::size_t>(v.view->tensor)].producer >= 0;
  if (!v.uniform && (rounds || counts)) {
    Value out = map(name, type, {v}, [](const std::vector<Expr>& a) { return a[0]; });
    out.nonnegative = v.nonnegative;
    return out;
  }
  Value out = v;
  out.type = type;
  return out;
}

void Builder::fold_casts(const std::set<int>& returned) {
  std::vector<int> readers(tensors_.size());
  for (const Op& op : ops_)
    for (const View& r : op.reads) {
      ++readers[static_cast<std::size_t>(r.tensor)];
      for (const Entry& e : r.index)
        if (e.by >= 0) ++readers[static_cast<std::size_t>(e.by)];
    }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    Op& op = ops_[i];
    if (op.value.kind != Expr::Kind::input || op.combine != Combine::assign || op.reads.size() != 1)
      continue;
    View read = op.reads.front();
    normalise(read);
    const int from = read.tensor, to = op.target;
    Stored &wide = tensors_[static_cast<std::size_t>(from)],
           &narrow = tensors_[static_cast<std::size_t>(to)];
    // Sums stay: their parts are added in the wider type.
    if (wide.type == narrow.type || wide.producer < 0 || wide.indexes || returned.contains(from) ||
        readers[static_cast<std::size_t>(from)] != 1 ||
        ops_[static_cast<std::size_t>(wide.producer)].combine != Combine::assign)
      continue;
    const Vars loops = expanded(op.loops);
    if (!std::ranges::equal(read.index, loops, {}, &Entry::plain)) continue;
    // The cast writes what nothing reads, and is left out.
    ops_[static_cast<std::size_t>(wide.producer)].target = to;
    narrow.producer = wide.producer;
    op.target = from;
    wide.producer = static_cast<int>(i);
  }
}

}  // namespace tilewright::onnx
