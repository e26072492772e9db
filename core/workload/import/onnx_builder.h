// Builds a workload from operators over ONNX's dimensions. A reshape is no operator: the index of a
// dimension is a list of variables, outermost first, and views say how each dimension of a stored
// tensor is indexed by them. Dimensions that must have the same cuts (an operator's output and what
// it reads element by element) share axes, so that a cut that one reader needs is a cut of all of
// them; where an axis is read at an affine form it stays whole (rigid), and readers that need it
// cut read it at outer * inner extent + inner. Cuts that do not divide one another are read by a
// copy whose index is a constant tensor. Dimensions of one element have no variable and are not
// stored.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/workload/import/onnx_model.h"
#include "core/workload/workload.h"

namespace tilewright::onnx {

/// Why a node cannot be said; thrown, and listed by the import.
struct Unsupported {
  std::string why;
};

/// Thrown where whole dimensions could be read, but not ones that are cut as the operands' are.
struct CutTooOften : Unsupported {};

/// Ranges that are cut alike.
class Axes {
 public:
  int make(std::int64_t extent);
  std::int64_t extent(int axis) const { return axes_[find(axis)].extent; }
  /// What it is cut into, outermost first; itself where it is whole.
  std::vector<int> leaves(int axis) const;
  bool whole(int axis) const { return axes_[find(axis)].outer < 0; }
  bool rigid(int axis) const { return axes_[find(axis)].rigid; }
  void make_rigid(int axis) { axes_[find(axis)].rigid = true; }
  bool same(int a, int b) const { return find(a) == find(b); }
  /// Two of whole extents; false where the axis is rigid.
  bool split(int axis, std::int64_t inner);
  /// Of two whole axes of the same extent.
  void unify(int a, int b);
  std::pair<int, int> halves(int axis) const {
    const Axis& a = axes_[find(axis)];
    return {static_cast<int>(a.outer), static_cast<int>(a.inner)};
  }

 private:
  struct Axis {
    std::int64_t extent = 1;
    std::ptrdiff_t same = -1, outer = -1, inner = -1;
    bool rigid = false;
  };
  std::size_t find(int axis) const;
  std::vector<Axis> axes_;
};

using Var = int;  ///< of a Builder: a loop before loops are named
using Vars = std::vector<Var>;
/// coefficient * var
using VarTerm = std::pair<Var, std::int64_t>;

/// How one stored dimension is indexed.
struct Entry {
  int axis = -1;
  Var plain = -1;  ///< by this variable, whose axis is the same; else by the terms and the offset
  std::vector<VarTerm> terms = {};
  std::int64_t offset = 0;
  int by = -1;  ///< by the values of this tensor, read at by_index
  std::vector<Entry> by_index = {};
};

struct View {
  int tensor = -1;
  std::vector<Vars> dims;    ///< of each dimension that ONNX has
  std::vector<Entry> index;  ///< of each stored dimension
};

/// What an ONNX name stands for.
struct Value {
  std::int32_t type = kUnknown;
  Shape shape = {};
  std::shared_ptr<const Literal> literal = {};  ///< its values are known
  std::optional<double> uniform = {};           ///< all of them are this
  std::optional<View> view = {};
  bool nonnegative = false;
  std::vector<Value> parts = {};  ///< of a sequence (kSequence)
  bool known() const { return literal != nullptr || uniform.has_value(); }
};

Expr number(double n);
Expr call(const char* function, std::vector<Expr> args);
/// The value of an expression of constants; nothing where it reads something.
std::optional<double> constant(const Expr& e);

class Builder {
 public:
  Builder(DType dtype) : dtype_(dtype) {}

  // ---- Values -----------------------------------------------------------------------------------
  Value input(const std::string& name, std::int32_t type, Shape shape);
  static Value known(std::int32_t type, Shape shape, std::vector<double> values);
  static Value known(std::shared_ptr<const Literal> literal);
  static Value uniform(std::int32_t type, Shape shape, double value);
  /// Its view with variables of its own.
  View read(const Value& v);
  /// What it reads; a constant where all values are the same.
  Expr operand(const Value& v, std::vector<View>& reads, View* view = nullptr);

  // ---- Views ------------------------------------------------------------------------------------
  Var var(std::int64_t extent) { return add_var(axes_.make(extent)); }
  /// None for an extent of 1.
  Vars vars(std::int64_t extent) { return extent == 1 ? Vars{} : Vars{var(extent)}; }
  std::int64_t extent(Var v) const { return axes_.extent(vars_[static_cast<std::size_t>(v)].axis); }
  Value transposed(const Value& v, const std::vector<std::int64_t>& order);
  Value reshaped(const std::string& name, const Value& v, const Shape& to);
  Value expanded(const Value& v, const Shape& to);
  /// start + step * i of a dimension.
  Value sliced(const std::string& name, const Value& v, std::size_t dim, std::int64_t start,
               std::int64_t step, std::int64_t count);
  /// The elements of a dimension that these indices name.
  Value taken(const std::string& name, const Value& v, std::size_t dim,
              const std::vector<std::int64_t>& indices);
  /// By index values that are computed.
  Value gathered(const std::string& name, const Value& v, std::size_t dim, const Value& indices);
  /// Reads a dimension at the values of `by`, whose variables then index it. False where the view
  /// cannot: then read plain(v, {dim}). Nothing may be unified with the view afterwards.
  bool index_by(View& view, std::size_t dim, View by);
  /// Cuts a view's dimensions as `to` says; false where it cannot.
  bool regroup(View& view, const Shape& to);
  /// Makes dimension db of b walk with da of a; false where the cuts divide one another nowhere.
  bool unify(View& a, std::size_t da, View& b, std::size_t db);
  /// unify, or CutTooOften.
  void demand_unified(View& a, std::size_t da, View& b, std::size_t db);
  /// Reads a dimension at sum of terms + offset. `outside`: beyond its ends there are zeros. False
  /// where the view cannot: then read plain(v).
  bool window(View& view, std::size_t dim, std::vector<VarTerm> terms, std::int64_t offset,
              bool outside);
  /// A copy whose dimensions have one variable each; those in `kept` even for one element.
  Value plain(const std::string& name, const Value& v, const std::set<std::size_t>& kept = {});
  /// plain() of what has dimensions of several variables; nothing of others.
  std::optional<Value> whole(const std::string& name, const Value& v);
  /// A copy in the order of its dimensions.
  Value copied(const std::string& name, const Value& v);
  void normalise(View& view);
  /// Which of several reads of these ranks, element by element, has the most variables, where all
  /// their cuts together make more dimensions than a tensor may have: images that are made larger
  /// by two, again and again. plain() of it has fewer.
  std::optional<std::size_t> cut_too_often(const std::vector<View>& reads,
                                           const std::vector<std::size_t>& ranks, std::size_t rank);
  /// Whether any stored dimension is indexed by it: a broadcast dimension's is not.
  bool reads_var(const View& view, Var v) const;

  // ---- Operators --------------------------------------------------------------------------------
  using Function = std::function<Expr(const std::vector<Expr>&)>;
  /// Element by element, broadcast.
  Value map(const std::string& name, std::int32_t type, const std::vector<Value>& ins,
            const Function& f);
  /// In another type; an operator of its own where that rounds, until fold_casts.
  Value rounded(const std::string& name, const Value& v, std::int32_t type);
  /// Over those dimensions, which stay as one element.
  Value reduce(const std::string& name, const Value& v, const std::set<std::size_t>& over,
               Combine combine, const Function& f);
  /// One operator; dims are the output's variables. Throws CutTooOften where they are more than a
  /// tensor may have.
  Value emit(const std::string& name, std::int32_t type, Shape shape, std::vector<Vars> dims,
             std::vector<View> reads, Expr value, Combine combine);
  static Expr at(Var v);
  /// The index of a dimension of those variables, outermost first.
  Expr index_of(const Vars& vars) const;
  /// select(in range, value, outside) for an affine index of [0, extent)
  Expr guarded(const std::vector<VarTerm>& terms, std::int64_t offset, std::int64_t extent,
               Expr inside, double outside);

  // ---- Whole numbers of 8 bits
  // --------------------------------------------------------------------
  /// What values are in whole numbers of i8: scale * (whole - zero). `axis`: the dimension along
  /// which scale and zero differ, if they do; they have one element, or as many as it.
  struct Scaled {
    Value whole, scale, zero;
    std::optional<std::size_t> axis = {};
  };
  /// Remembers it of what was made element by element from whole numbers.
  void scaled(const Value& real, const Scaled& as);
  /// The same of a view of such values, whose elements are all there; nothing of others.
  std::optional<Scaled> scaled_of(const Value& v) const;

  // ---- The workload -----------------------------------------------------------------------------
  /// Computed values are outputs under these names; what none of them needs is left out.
  struct Result {
    WorkloadSpec spec;
    std::vector<std::string> unused;           ///< inputs that no operator reads
    std::map<std::string, std::string> names;  ///< ONNX inputs and outputs to tensors
  };
  Result finish(const std::string& name, const std::vector<std::pair<std::string, Value>>& outputs);
  std::size_t operators() const { return ops_.size(); }

 private:
  struct Variable {
    int axis;
    Var outer = -1, inner = -1;
  };
  struct Stored {
    std::string name;
    std::int32_t type;
    std::vector<int> dims;
    std::shared_ptr<const Literal> literal = {};
    int producer = -1;
    bool indexes = false;  ///< values are indices: an integer type
  };
  struct Op {
    std::string name;
    int target;
    Vars loops;  ///< of the output's stored dimensions
    std::vector<View> reads;
    Expr value;
    Combine combine;
  };
  friend class Finisher;

  Var add_var(int axis);
  void expand(Var v, Vars& to);
  Vars expanded(const Vars& vs);
  void expand(const Entry& e, std::vector<Entry>& to);
  void substitute(View& view, Var v, const std::vector<VarTerm>& by, std::int64_t offset);
  void rename(View& view, Var from, Var to);
  bool refine(View& view, std::size_t dim, const std::vector<std::int64_t>& cuts);
  bool has_room(int axis) const;
  /// Dimensions of a tensor whose ONNX dimensions have these variables.
  std::size_t stored_rank(const std::vector<Vars>& dims);
  std::vector<std::int64_t> cuts_of(const Vars& vs) const;
  /// What computes a value that only a cast reads writes the cast's tensor; not of outputs.
  void fold_casts(const std::set<int>& returned);
  int constant_tensor(const std::shared_ptr<const Literal>& literal);
  View view_of_tensor(int tensor, const Shape& shape);
  Value gather_copy(const std::string& name, const Value& v, const Shape& to,
                    const std::set<std::size_t>& kept = {});

  DType dtype_;
  Axes axes_;
  std::vector<Variable> vars_;
  std::vector<Stored> tensors_;
  std::vector<Op> ops_;
  std::map<const Literal*, int> constants_;
  struct Kept {
    int tensor = -1;
    Value scale, zero;
    int axis = -1;  ///< of axes_
  };
  std::map<int, Kept> scaled_;
};

}  // namespace tilewright::onnx
