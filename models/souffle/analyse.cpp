// What tensor expressions are and how they depend on one another (section 5.1 to 5.3).
#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "core/workload/bytes_read.h"
#include "models/souffle/souffle.h"

namespace tilewright::souffle {
namespace {

double calls_in(const Expr& e) {
  double n = e.kind == Expr::Kind::call ? 1 : 0;
  for (const Expr& a : e.args) n += calls_in(a);
  return n;
}

Expression expression_of(const Workload& w, OpId id, const Options& o) {
  const Operator& op = w.op(id);
  Expression e;
  e.many = !w.reduction_loops(id).empty();
  const double points = static_cast<double>(w.operations(id).value);
  std::set<TensorId> seen;
  for (const Output& out : op.outputs) {
    const double each = calls_in(out.value) + (out.combine == Combine::assign ? 0 : 1);
    e.operations += points * std::max(each, 1.0);
    e.elements += static_cast<double>(w.tensor(out.target.tensor).elements().value);
  }
  for (const Access& a : op.inputs) {
    if (!seen.insert(a.tensor).second) continue;
    const OpId one[] = {id};
    e.elements += static_cast<double>(bytes_read(w, a.tensor, one).value) /
                  static_cast<double>(size_of(w.tensor(a.tensor).dtype));
  }
  e.intensive = o.intensive == Intensive::contraction ? w.is_contraction(id)
                                                      : e.operations >= o.threshold * e.elements;
  return e;
}

/// Which operators a path leads to from each.
class Paths {
 public:
  explicit Paths(const Workload& w)
      : words_((w.operators().size() + 63) / 64), bits_(words_ * w.operators().size()) {
    const auto order = w.topological_order();
    for (auto it = order.rbegin(); it != order.rend(); ++it)
      for (const Output& out : w.op(*it).outputs)
        for (OpId reader : w.consumers(out.target.tensor)) {
          std::uint64_t* mine = row(*it);
          const std::uint64_t* theirs = row(reader);
          for (std::size_t i = 0; i < words_; ++i) mine[i] |= theirs[i];
          mine[reader.index() / 64] |= std::uint64_t{1} << (reader.index() % 64);
        }
  }
  bool between(OpId from, OpId to) { return row(from)[to.index() / 64] >> (to.index() % 64) & 1; }

 private:
  std::uint64_t* row(OpId op) { return bits_.data() + op.index() * words_; }
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace

Analysis analyse(const Workload& w, const Options& o) {
  Analysis a;
  a.of.reserve(w.operators().size());
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    a.of.push_back(expression_of(w, OpId(i), o));
  std::vector<int> position(w.operators().size());
  int n = 0;
  for (OpId id : w.topological_order()) position[id.index()] = n++;
  Paths paths(w);
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const TensorId id(t);
    const OpId producer = w.producer(id);
    std::pair<int, int> live{producer.valid() ? position[producer.index()] : -1, -1};
    const auto readers = w.consumers(id);
    for (OpId r : readers) live.second = std::max(live.second, position[r.index()]);
    if (w.is_output(id)) live.second = n;
    a.live.push_back(live);
    if (readers.size() < 2) continue;
    Reused reused{.tensor = id, .readers = {readers.begin(), readers.end()}};
    for (std::size_t i = 0; i < readers.size(); ++i)
      for (std::size_t j = i + 1; j < readers.size(); ++j)
        (paths.between(readers[i], readers[j]) || paths.between(readers[j], readers[i])
             ? reused.in_time
             : reused.in_space) += 1;
    a.reused.push_back(std::move(reused));
  }
  return a;
}

std::optional<IndexMap> index_map(const Operator& op, const Access& input) {
  const Access& out = op.outputs.front().target;
  IndexMap map;
  for (const Affine& f : input.index) {
    if (f.gathered >= 0) return {};
    map.matrix.emplace_back(out.index.size(), 0);
    map.offset.push_back(f.offset);
    for (const Term& t : f.terms) {
      const auto at = std::ranges::find_if(
          out.index, [&](const Affine& o) { return o.plain_loop() == t.loop; });
      if (at == out.index.end()) return {};
      map.matrix.back()[static_cast<std::size_t>(at - out.index.begin())] = t.coefficient;
    }
  }
  return map;
}

std::optional<IndexMap> composed(const IndexMap& inner, const IndexMap& outer) {
  const std::size_t middle = outer.matrix.size();
  const std::size_t columns = middle == 0 ? 0 : outer.matrix.front().size();
  IndexMap map;
  for (std::size_t r = 0; r < inner.matrix.size(); ++r) {
    if (inner.matrix[r].size() != middle) return {};
    map.matrix.emplace_back(columns, 0);
    map.offset.push_back(inner.offset[r]);
    for (std::size_t k = 0; k < middle; ++k) {
      map.offset.back() += inner.matrix[r][k] * outer.offset[k];
      for (std::size_t c = 0; c < columns; ++c)
        map.matrix.back()[c] += inner.matrix[r][k] * outer.matrix[k][c];
    }
  }
  return map;
}

std::string to_text(const IndexMap& map) {
  std::string out = "[";
  for (std::size_t r = 0; r < map.matrix.size(); ++r) {
    out += r == 0 ? "" : "; ";
    for (std::size_t c = 0; c < map.matrix[r].size(); ++c)
      out += (c == 0 ? "" : " ") + std::to_string(map.matrix[r][c]);
  }
  out += "] + [";
  for (std::size_t r = 0; r < map.offset.size(); ++r)
    out += (r == 0 ? "" : " ") + std::to_string(map.offset[r]);
  return out + "]";
}

}  // namespace tilewright::souffle
