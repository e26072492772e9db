// Where the tiles of a kernel for processors lie: in their tensor, or packed into an array of their
// own. Internal header of the folder.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "core/plan/schedule.h"
#include "models/quickest/quickest.h"

namespace tilewright::quickest {

/// The loops of an operator in these ranges, in iterations.
std::vector<std::int64_t> extents_of(const Schedule& s, const ScheduledKernel& k,
                                     const Ranges& ranges, OpId op);

/// Loops of which some operator reads an input well outside of it, without summing there, as one
/// that joins several tensors along a dimension does.
std::set<LoopId> joined_loops(const Schedule& s, const ScheduledKernel& k);

/// How a box is converted: by rows of its last dimension.
struct ConvertedRows {
  double rows = 1, vectors = 1;  ///< vectors of all rows
};

class Places {
 public:
  Places(const Schedule& s, const ScheduledKernel& k, const Rates& r)
      : s_(s), k_(k), w_(*s.workload), r_(r) {
    for (const Buffer& b : k.buffers) converts_ = converts_ || (leaves(b) && converted(b.tensor));
    find_reals();
  }

  /// Whether a buffer is written home.
  static bool leaves(const Buffer& b) {
    return b.role == BufferRole::output || (b.role == BufferRole::intermediate && b.leaves);
  }
  /// Whether a tensor has another type than what kernels compute in.
  bool converted(TensorId t) const {
    const DType type = w_.tensor(t).dtype;
    return type != DType::f32 && type != DType::f64;
  }

  /// Whether an operator sums products of whole numbers of 8 bits through a window, or of images,
  /// in several channels at once: its left operand never changes (codegen/cpu/emit_bytes.cpp).
  bool convolves_bytes(OpId op, const Product& x) const;

  /// Whether a buffer's tiles are read and written where their tensor lies. A buffer that a load
  /// fills is packed or not from `decide` on.
  bool in_place(BufferId id) const;

  /// The first tile that is met says whether a load's buffer is packed, as its largest one would:
  /// where its rows, or those that a micro-kernel walks together, share sets of a cache.
  void decide(NodeId load, const Box& box, const Ranges& ranges);

  /// Bytes of a box where its tensor lies (`home`): whole lines of each row; or in an array of its
  /// own.
  double bytes_of_box(TensorId t, const Box& box, bool home) const;
  /// Rows of a box of the tensor that lie apart.
  double rows_of_box(TensorId t, const Box& box) const;
  /// Elements from one iteration of the loop to the next, where the tensor lies at home.
  std::int64_t stride_at_home(const Access& a, LoopId loop) const;
  double line() const { return r_.caches.empty() ? 64 : r_.caches.front().line; }

  /// Elements of a row of a box, at least one.
  static std::int64_t row_of(const Box& box);
  ConvertedRows converted_rows(const Box& box) const;
  /// What rounding a whole tensor takes as its tiles, with rows of so many elements, are copied
  /// home.
  double seconds_of_stores(TensorId t, std::int64_t row) const;

  /// Whether a micro-kernel keeps panels of a right operand's rows as it reads them
  /// (core/lowering/product_loads.h).
  bool keeps_panels(const ReadRef& read, const Ranges& ranges) const;
  /// How many times its bytes a step of a product's right operand brings as lines: rows at home
  /// that are no whole lines apart begin anywhere in one, unless their panels are kept or packed.
  double share_of_lines(const ReadRef& read, const Ranges& ranges) const;
  /// Whether a product finds the operand as it was packed before the first run: a right one's
  /// columns, or through a window a left one's rows (codegen/cpu/emit_prepared.cpp).
  bool packed_once(const ReadRef& read) const;
  /// Whether a product's kernel turns its right operand before it reads it: columns are no
  /// neighbours there (codegen/cpu/emit_operand.cpp).
  bool turns(const ReadRef& read) const;
  /// Whether few rows are multiplied by it as it lies, along the depth (one: wherever it lies).
  bool reads_right_as_it_lies(const Operator& op, const Product& p) const;
  /// Whether what it turns is one matrix in these ranges.
  bool is_one_matrix(const ReadRef& read, const Ranges& ranges) const;

 private:
  struct RightRows {
    std::int64_t apart = 0, step = 0;  ///< bytes: from one to the next; a panel's
    std::int64_t rows = 1, group = 1, depth = 1, columns = 1;
  };
  std::optional<RightRows> right_rows(const ReadRef& read, const Ranges& ranges) const;

  void find_reals();
  bool shares_sets(TensorId t, const Box& box, const CacheRate& c, bool whole) const;
  Box panel(const ReadRef& read, Ranges ranges) const;

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  const Rates& r_;
  bool converts_ = false;     // what is written: then no tile of an output is in place
  std::set<BufferId> reals_;  // those of 8 bits that somebody walks as numbers, not as bytes
  std::map<BufferId, bool> packed_;
};

}  // namespace tilewright::quickest
