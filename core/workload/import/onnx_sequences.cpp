// Sequences of tensors. Which tensors they have is known before the run, so that they fold away;
// optional values are there or not, which is known as well.
#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {
namespace {

constexpr std::size_t kMostParts = 4096;

Value sequence_of(std::vector<Value> parts) {
  if (parts.size() > kMostParts) throw Unsupported{"a sequence of more than 4096 tensors"};
  Value out{.type = kSequence};
  out.parts = std::move(parts);
  return out;
}

/// The position that an input names, of `count` ones, from the end where it is negative; or behind
/// the last.
std::size_t position(const NodeReader& n, std::size_t input, std::size_t count,
                     bool behind = false) {
  const auto at = n.known_integers(input);
  if (at.size() != 1) throw Unsupported{"a position that is not one number"};
  const auto all = static_cast<std::int64_t>(count);
  const std::int64_t p = at[0] < 0 ? at[0] + all : at[0];
  if (p < 0 || p >= all + (behind ? 1 : 0)) throw Unsupported{"a position outside of its sequence"};
  return static_cast<std::size_t>(p);
}

void say_construct(NodeReader& n) {
  for (std::size_t i = 0; i < n.in.size(); ++i) n.at(i);
  n.out[0] = sequence_of(n.in);
}

void say_empty(NodeReader& n) {
  n.integer("dtype", kFloat);
  n.out[0] = sequence_of({});
}

void say_insert(NodeReader& n) {
  std::vector<Value> parts = n.sequence(0);
  const std::size_t at = n.has(2) ? position(n, 2, parts.size(), true) : parts.size();
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at), n.at(1));
  n.out[0] = sequence_of(std::move(parts));
}

void say_erase(NodeReader& n) {
  std::vector<Value> parts = n.sequence(0);
  if (parts.empty()) throw Unsupported{"an empty sequence"};
  const std::size_t at = n.has(1) ? position(n, 1, parts.size()) : parts.size() - 1;
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
  n.out[0] = sequence_of(std::move(parts));
}

void say_at(NodeReader& n) {
  const std::vector<Value>& parts = n.sequence(0);
  n.out[0] = parts[position(n, 1, parts.size())];
}

void say_length(NodeReader& n) {
  n.out[0] = Builder::known(kInt64, {}, {static_cast<double>(n.sequence(0).size())});
}

/// Parts along an axis, of one element each without an input of lengths.
void say_split_to_sequence(NodeReader& n) {
  const Value& v = n.at(0);
  const std::size_t d = NodeReader::axis(n.integer("axis", 0), n.rank());
  const bool keeps = n.has(1) || n.integer("keepdims", 1) != 0;
  std::vector<std::int64_t> lengths = {1};
  bool same = true;  // all parts are as long, but for the last
  if (n.has(1)) {
    lengths = n.known_integers(1);
    same = n.at(1).shape.empty();
    if (same && (lengths.size() != 1 || lengths[0] < 1)) throw Unsupported{"parts of no length"};
  }
  std::vector<Value> parts;
  std::int64_t from = 0;
  for (std::size_t i = 0; same ? from < v.shape[d] : i < lengths.size(); ++i) {
    std::int64_t count = same ? lengths[0] : lengths[i];
    if (same) count = std::min(count, v.shape[d] - from);
    if (count < 1 || count > v.shape[d] - from || parts.size() > kMostParts)
      throw Unsupported{"parts that are not the whole"};
    const Value part = n.b.sliced(n.name + "_part", v, d, from, 1, count);
    parts.push_back(keeps ? part : squeezed(n.b, part, d));
    from += count;
  }
  n.out[0] = sequence_of(std::move(parts));
}

void say_concat_from(NodeReader& n) {
  std::vector<Value> parts = n.sequence(0);
  if (parts.empty()) throw Unsupported{"an empty sequence"};
  const bool stacks = n.integer("new_axis", 0) != 0;
  const std::size_t rank = parts.front().shape.size() + (stacks ? 1 : 0);
  const std::size_t d = NodeReader::axis(n.integer("axis", 0), rank);
  for (Value& v : parts) {
    if (v.type == kSequence || v.shape.size() + (stacks ? 1 : 0) != rank)
      throw Unsupported{"operands of different ranks"};
    if (!stacks) continue;
    Shape to = v.shape;
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(d), 1);
    v = n.b.reshaped(n.name + "_part", v, to);
  }
  n.out[0] = joined(n.b, n.name, parts, d);
}

void say_optional(NodeReader& n) {
  if (!n.has(0)) throw Unsupported{"an optional value that is not there"};
  n.out[0] = n.in[0];
}

void say_has(NodeReader& n) { n.out[0] = Builder::known(kBool, {}, {n.has(0) ? 1.0 : 0.0}); }

}  // namespace

std::vector<Said> sequence_operators() {
  return {{"SequenceConstruct", say_construct},
          {"SequenceEmpty", say_empty},
          {"SequenceInsert", say_insert},
          {"SequenceErase", say_erase},
          {"SequenceAt", say_at},
          {"SequenceLength", say_length},
          {"SplitToSequence", say_split_to_sequence},
          {"ConcatFromSequence", say_concat_from},
          {"Optional", say_optional},
          {"OptionalGetElement", say_optional},
          {"OptionalHasElement", say_has}};
}

}  // namespace tilewright::onnx
