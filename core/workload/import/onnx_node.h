// One node on its way into a workload. Shared by the files that say ONNX's operators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/workload/import/onnx_builder.h"

namespace tilewright::onnx {

class NodeReader {
 public:
  NodeReader(Builder& b, const Node& node, std::int64_t opset, std::vector<Value> in)
      : b(b), node(node), opset(opset), in(std::move(in)), out(node.outputs.size()) {
    name = !node.outputs.empty() && !node.outputs.front().empty() ? node.outputs.front() : node.op;
  }

  Builder& b;
  const Node& node;
  std::int64_t opset;
  std::vector<Value> in;   ///< an optional input that is not there has type kUnknown
  std::vector<Value> out;  ///< to be filled; those without a name need not be
  std::string name;        ///< of the first output
  std::string note = {};   ///< what the import says of it, once for all nodes that say the same

  bool has(std::size_t i) const { return i < in.size() && in[i].type != kUnknown; }
  bool wants(std::size_t i) const { return i < node.outputs.size() && !node.outputs[i].empty(); }
  const Value& at(std::size_t i) const {
    if (!has(i)) throw Unsupported{"input " + std::to_string(i) + " is missing"};
    if (in[i].type == kSequence) throw Unsupported{"a sequence where a tensor is read"};
    return in[i];
  }
  /// The tensors of an input that is a sequence.
  const std::vector<Value>& sequence(std::size_t i) const {
    if (!has(i) || in[i].type != kSequence)
      throw Unsupported{"input " + std::to_string(i) + " is no sequence"};
    return in[i].parts;
  }
  std::size_t rank(std::size_t i = 0) const { return at(i).shape.size(); }

  std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const;
  double real(std::string_view attribute, double otherwise) const;
  std::string text(std::string_view attribute, std::string otherwise) const;
  std::vector<std::int64_t> integers(std::string_view attribute) const;
  std::vector<double> reals(std::string_view attribute) const;
  bool has_attribute(std::string_view attribute) const { return find(attribute) != nullptr; }
  /// Notes that it was asked for.
  const Attribute* find(std::string_view attribute) const;
  /// An attribute that nobody asked for and that may change what the node computes, as operators of
  /// later versions have them; nullptr: none.
  const Attribute* not_asked_for() const;
  /// From 0 on; from the end where negative. Unsupported outside.
  static std::size_t axis(std::int64_t of, std::size_t rank);
  /// "perm", reversed by default. Unsupported where it is none.
  std::vector<std::int64_t> permutation(std::size_t rank) const;
  /// The values of an input, which must be known.
  std::vector<std::int64_t> known_integers(std::size_t i) const;
  std::vector<double> known_values(std::size_t i) const;
  /// Of an attribute up to some opset, of an input later; nothing where neither is there.
  std::optional<std::vector<std::int64_t>> integers_of(std::string_view attribute,
                                                       std::size_t input) const;
  /// Of the parts of a Split, which are the whole: those given, or alike but for the last.
  std::vector<std::int64_t> parts_of(std::int64_t whole) const;

 private:
  mutable std::vector<const Attribute*> asked_;
};

/// The values of a constant. Unsupported where there are more than a million.
std::vector<double> values_of(const Value& v);

/// What a node of known inputs makes, where that is worth knowing: shapes, masks, scalars. Nothing
/// where it is left to the workload.
std::optional<std::vector<Value>> fold(const NodeReader& n);

/// Of a node that reads something without elements: whether what it makes is known by that, and in
/// n.out. Throws Unsupported where its operator is none that may read such a thing.
bool without_elements(NodeReader& n);

/// An operator of ONNX: fills n.out, or throws Unsupported.
using Saying = void (*)(NodeReader& n);
/// Whether all its inputs are known, and few enough to compute with while importing.
bool all_small(const NodeReader& n);
/// What `say` makes of known inputs, evaluated. Nothing where they are not known, too many or too
/// much to compute.
std::optional<std::vector<Value>> evaluated(const NodeReader& n, Saying say);
struct Said {
  std::string_view op;
  Saying say;
};
/// Of that name; nullptr: none.
Saying saying_of(std::string_view op);
std::vector<Said> element_operators();
std::vector<Said> product_operators();
std::vector<Said> attention_operators();
std::vector<Said> microsoft_operators();
std::vector<Said> integer_operators();
std::vector<Said> window_operators();
std::vector<Said> row_operators();
std::vector<Said> moving_operators();
std::vector<Said> recurrent_operators();
std::vector<Said> quantised_operators();
std::vector<Said> order_operators();
std::vector<Said> index_operators();
std::vector<Said> resize_operators();
std::vector<Said> library_operators();
std::vector<Said> sampling_operators();
std::vector<Said> signal_operators();
std::vector<Said> pool_operators();
std::vector<Said> region_operators();
std::vector<Said> sequence_operators();

// ---- Parts of several operators ----
/// What the standard operator of opset 21 makes of these values: for operators that are several.
/// `attributes` are all it gets. Unsupported where it takes one of them not.
std::vector<Value> said_as(NodeReader& n, const std::string& name, std::string_view op,
                           std::vector<Value> in, std::vector<Attribute> attributes = {},
                           std::size_t outputs = 1);
/// The same elements; Unsupported where they are not as many.
Value as_shape(Builder& b, const std::string& name, const Value& v, const Shape& to);
/// Rounded to 256 numbers of a scale that its own least and largest element give.
Value quantised_there_and_back(NodeReader& n, const std::string& name, const Value& v);
/// v, which has an element for each block along an axis of a tensor of that shape, as such a
/// tensor.
Value by_blocks(Builder& b, const std::string& name, const Value& v, const Shape& of,
                std::size_t axis, std::int64_t block);
/// x at index tensors of one shape, one for each dimension from `first` on: [batches..., dimensions
/// between these and `first`, the rest of the indices' dimensions, the rest of x's]. The first
/// `batches` dimensions are those of the indices, too. Indices count from 0 on.
Value read_at(Builder& b, const std::string& name, const Value& x, std::size_t batches,
              std::size_t first, std::vector<Value> indices);
/// Queries, keys and values of [batch, heads, rows, width], and which keys a query sees.
struct Heads {
  Value q, k, v;
  std::optional<Value> mask = {};         ///< added to the scores, or true where a key is seen
  bool finite = false;                    ///< no score becomes -inf by the mask
  std::optional<Value> lengths = {};      ///< of each sequence's keys
  bool causal = false;                    ///< none behind the query's own place
  std::int64_t before = -1, behind = -1;  ///< a window around it; -1: without an end
  std::int64_t past = 0;                  ///< keys before the first query's own
  double scale = 0;                       ///< 0: one over the root of the width
  double cap = 0;                         ///< scores are held to it by tanh; 0: they are not
  std::int64_t shown = -1;                ///< qk_matmul_output_mode; -1: none
  Value scores = {};                      ///< what is shown
};
Value attended(NodeReader& n, Heads& heads);
/// [batch, rows, heads * width] as [batch, heads, rows, width], and back.
Value split_heads(NodeReader& n, const std::string& name, const Value& v, std::int64_t heads);
Value joined_heads(NodeReader& n, const std::string& name, const Value& y);
/// onnxruntime's Attention, whose weights make queries, keys and values.
void say_packed_attention(NodeReader& n);
/// Elements times those that each is compared with: what an operator may cost that compares all.
constexpr std::int64_t kMostCompared = std::int64_t{1} << 31;
Expr add(Expr a, Expr b);
Expr sub(Expr a, Expr b);
Expr mul(Expr a, Expr b);
Expr lt(Expr a, Expr b);
Expr select(Expr c, Expr a, Expr b);
/// 1 where two numbers are the same, else 0.
Expr equal(const Expr& a, const Expr& b);
Value matrix_product(Builder& b, const std::string& name, const Value& a, const Value& c);
/// The same of values that are whole numbers of 8 bits times scales: a sum of whole numbers, scaled
/// afterwards. Nothing of others.
std::optional<Value> whole_product(Builder& b, const std::string& name, const Value& a,
                                   const Value& c);
Value softmax_over(Builder& b, const std::string& name, const Value& x,
                   const std::set<std::size_t>& over, bool log);
Value sum_of(Builder& b, const std::string& name, const Value& x, const Value& y);
Value joined(Builder& b, const std::string& name, const std::vector<Value>& parts, std::size_t dim);
Value squeezed(Builder& b, const Value& v, std::size_t dim);
Expr gelu_by_tanh(const Expr& x);
/// The nearest whole number, the even one of two.
Expr nearest_whole(const Expr& x);
/// Casts that change no value that a workload computes.
Value cast(const Value& v, std::int32_t type);
/// The function of one value by its ONNX name, of LSTM's activations and the like.
std::optional<Expr> activation(std::string_view name, const Expr& x, double alpha, double beta);

}  // namespace tilewright::onnx
