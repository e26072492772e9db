// The Ranges API of core/plan/schedule.h, step by step, on expressions: what emitters of every
// target share. The emitted program must have Range, Box<R>, reach, clip, hull and needed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/common/lines.h"
#include "core/lowering/checks.h"
#include "core/lowering/symbolic.h"
#include "core/plan/schedule.h"

namespace tilewright::codegen {

using namespace lowering;

/// Current ranges of all operators, by the same slots as a Ranges.
struct SymRanges {
  std::vector<SymRange> at;
  std::vector<Linear> low;  ///< where a block's share of each loop begins (rule 12, atomic)
};

/// The identifiers in a text.
std::set<std::string> names_in(const std::string& text);
class RangeEmitter {
 protected:
  RangeEmitter(const Workload& workload, const ScheduledKernel& kernel)
      : workload_(workload), k_(kernel) {}
  virtual ~RangeEmitter() = default;
  /// The tile of a sliding buffer, for needed().
  virtual std::string ref(BufferId b) const = 0;

  SymRanges whole_ranges() const;
  SymRange reach(const Operator& op, const Affine& index, std::size_t base,
                 const SymRanges& ranges);
  SymRange clipped(const SymRange& r, std::int64_t extent);
  SymBox access_box(OpId op, const Access& access, const SymRanges& ranges);
  SymBox hull_of(const std::vector<SymBox>& boxes, TensorId tensor);
  SymBox reads_box(const std::vector<ReadRef>& reads, TensorId tensor, const SymRanges& ranges);
  void infer(const Inference& inference, SymRanges& ranges, bool look_ahead);
  /// The ranges after those inferences; `made`: where they are where these change any.
  const SymRanges& ahead_of(const std::vector<Inference>& inferences, const SymRanges& ranges,
                            SymRanges& made);
  SymRange defined(const std::string& base, const std::string& value, Interval bounds,
                   std::int64_t most, bool nonempty = false, std::int64_t multiple = 1);
  SymBox tile_of(const Buffer& b, const SymRanges& ranges);
  SymBox part_of(const Buffer& b, const BlockPart& part, const SymRanges& ranges) const;
  SymBox defined_box(const std::string& base, const std::string& value, const SymBox& like,
                     TensorId tensor);
  std::string box_text(const SymBox& box) const;
  /// "a < b && ..." for what of a box may be empty; empty text: it never is.
  std::string nonempty(const SymBox& box) const;
  std::string initialises(OpId op, const SymRanges& ranges, bool atomic) const;
  std::string not_yet_added(OpId op, bool atomic) const;
  /// When an operator's sums are complete with these ranges; empty: always.
  std::string completes(OpId op, const SymRanges& ranges) const;
  /// A loop of the emitted program, its names and the range of one iteration. Where steps do not
  /// divide the range, `end` is to be declared: the least of next() and `high`.
  struct Cut {
    std::string name, end, low, high;  ///< identifiers; the range around, as text
    std::int64_t step = 1;
    SymRange inner;
    bool whole_steps = false;
    std::string next() const { return name + " + " + std::to_string(step); }
  };
  Cut cut(NodeId loop, const SymRanges& around);
  /// The ranges within an iteration, before anything is inferred.
  SymRanges inside_of(NodeId loop, const Cut& cut, const SymRanges& around) const;
  const SymRange& range(const SymRanges& r, OpId op, int local) const {
    return r.at[k_.range_base[op.index()] + static_cast<std::size_t>(local)];
  }
  std::size_t slot(const OpLoop& c) const {
    return k_.range_base[c.op.index()] + static_cast<std::size_t>(c.local);
  }
  const Buffer& buffer(BufferId b) const { return k_.buffer(b); }

  const Workload& workload_;
  const ScheduledKernel& k_;
  Lines out_{1};
  Variables variables_;
  Names names_;
  struct OpenLoop {
    NodeId id;
    std::string name, end;
    std::string first, last;  ///< of the range that it cuts
    SymRanges around;
  };
  std::vector<OpenLoop> open_;  ///< loops around the current place
  /// What has been given a name, by its text: the innermost block last.
  std::vector<std::map<std::string, SymBox>> defined_;
};

}  // namespace tilewright::codegen
