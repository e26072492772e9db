// The workload as a graph of operators, and which sets of them one kernel can hold.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/effort.h"
#include "core/base/format.h"
#include "core/lowering/gpu/block_computes.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/block_time.h"
#include "core/lowering/row_values.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/loops.h"

namespace tilewright::stitching {
namespace {

// Instructions of an exponential in f32 beside that of the special function units; exponentials
// that other functions of f64 take (experiments/gpu/function_counts).
constexpr double kBesideOfExponential = 6;
constexpr std::array<std::pair<std::string_view, double>, 7> kOfF64 = {{{"log", 1.7},
                                                                        {"tanh", 1.8},
                                                                        {"sigmoid", 1.8},
                                                                        {"rsqrt", 1.5},
                                                                        {"erf", 2.2},
                                                                        {"gelu", 2.5},
                                                                        {"pow", 4.0}}};

void count_calls(const Expr& e, Vertex& v) {
  if (e.kind == Expr::Kind::call) {
    // Compilers divide by a constant as they multiply by its reciprocal (XLA's algebraic
    // simplifier).
    const bool scales = e.function == "div" && e.args[1].kind == Expr::Kind::constant;
    // So do they multiply where the exponent is a small whole number.
    const bool power = lowering::is_short_power(e) && e.args[1].constant > 0 &&
                       std::fmod(e.args[1].constant, 1) == 0;
    const bool light = scales || power || find_expr_function(e.function)->light != 0;
    ++(light ? v.light : v.expensive);
    v.called += std::max(0.0, lowering::beside_special(e) - kBesideOfExponential);
    for (const auto& [name, times] : kOfF64)
      if (e.function == name && !lowering::is_short_power(e)) v.called_f64 += times - 1;
  }
  for (const Expr& a : e.args) count_calls(a, v);
}

/// A product reads elements again and again: more than `ridge` flops a byte of its tensors or, for
/// ridge 0, more points than any of its tensors has elements.
bool is_product(const Workload& w, OpId id, double ridge) {
  if (!w.is_contraction(id)) return false;
  const Operator& op = w.op(id);
  if (ridge > 0) {
    std::map<TensorId, Bytes> touched;
    for (const Access& a : op.inputs)
      touched[a.tensor] = std::max(touched[a.tensor], bytes_read(w, op, a));
    double bytes = 0;
    for (const auto& [tensor, read] : touched) bytes += static_cast<double>(read.value);
    for (const Output& o : op.outputs)
      bytes += static_cast<double>(w.tensor(o.target.tensor).bytes().value);
    const auto flops =
        2.0 * static_cast<double>(w.operations(id).value) * static_cast<double>(op.outputs.size());
    return flops > ridge * bytes;
  }
  std::int64_t most = 0;
  for (const Access& a : op.inputs) most = std::max(most, w.tensor(a.tensor).elements().value);
  for (const Output& o : op.outputs)
    most = std::max(most, w.tensor(o.target.tensor).elements().value);
  return w.operations(id).value > most;
}

Vertex vertex_of(const Workload& w, OpId id, double ridge) {
  Vertex v{.op = id};
  const Operator& op = w.op(id);
  for (LoopId l : op.loops) v.loops |= bit(l);
  for (LoopId l : w.reduction_loops(id)) v.reduced |= bit(l);
  for (const Output& o : op.outputs) {
    count_calls(o.value, v);
    if (o.combine != Combine::assign) ++v.light;
    v.row_bytes += size_of(w.tensor(o.target.tensor).dtype);
    v.leaves = v.leaves || w.is_output(o.target.tensor);
  }
  v.outputs = static_cast<std::int64_t>(op.outputs.size());
  for (const Access& a : op.inputs)
    if (w.is_input(a.tensor)) ++v.outside_inputs;
  v.kind = is_product(w, id, ridge) ? Kind::product
           : !v.reduced.empty()     ? Kind::reduction
           : v.expensive != 0       ? Kind::expensive
                                    : Kind::light;
  return v;
}

/// Loops along which a block of the reader needs what other blocks make: where the reader's index
/// is another than the loop that wrote that dimension. A gather may need any of it: all loops.
LoopSet crossing(const Output& written, const Access& read) {
  if (is_gather(read)) return LoopSet::all();
  LoopSet bad;
  for (std::size_t d = 0; d < read.index.size(); ++d) {
    const auto wrote = written.target.index[d].plain_loop();
    const auto reads = read.index[d].plain_loop();
    if (wrote && reads && *wrote == *reads) continue;
    if (wrote) bad |= bit(*wrote);
    bad |= loops_of(read.index[d]);
  }
  return bad;
}

}  // namespace

void Graph::Priced::spend(const std::vector<int>& vertices, std::size_t tree, std::int64_t units) {
  if (!spent[vertices].emplace(tree, units).second) return;
  effort += units;
  Effort::spend(units);
}

Graph::Priced& Graph::priced_on(const std::shared_ptr<const Machine>& machine) const {
  if (priced_->machine != machine || !priced_->schedules) {
    EffortOfSchedules* const listed = priced_->listed;
    *priced_ = {};
    priced_->machine = machine;
    priced_->schedules = std::make_shared<std::map<std::string, AskedSchedule>>();
    priced_->listed = listed;
  }
  return *priced_;
}

Graph Graph::in_block(const Component& c) const {
  Graph g = *this;
  if (c.along >= 0) g.extents_[static_cast<std::size_t>(c.along)] = c.columns;
  return g;
}

Result<Graph> Graph::create(std::shared_ptr<const Workload> w, double ridge,
                            const std::set<OpId>* products) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Graph g;
  g.workload_ = std::move(w);
  for (const Loop& l : g.workload_->loops()) g.extents_.push_back(l.extent);
  for (OpId op : g.workload_->topological_order())
    g.vertices_.push_back(vertex_of(
        *g.workload_, op, products == nullptr || products->contains(op) ? ridge : kNever));
  g.connect();
  g.close();
  return g;
}

void Graph::connect() {
  const Workload& w = *workload_;
  std::vector<int> vertex_of(w.operators().size());
  for (int v = 0; v < size(); ++v) vertex_of[vertices_[static_cast<std::size_t>(v)].op.index()] = v;
  for (int to = 0; to < size(); ++to) {
    Vertex& reader = vertices_[static_cast<std::size_t>(to)];
    const Operator& op = w.op(reader.op);
    for (const Access& a : op.inputs) {
      const OpId producer = w.producer(a.tensor);
      if (!producer.valid()) continue;
      const int from = vertex_of[producer.index()];
      Vertex& writer = vertices_[static_cast<std::size_t>(from)];
      const std::vector<Output>& outputs = w.op(producer).outputs;
      const auto written =
          std::ranges::find(outputs, a.tensor, [](const Output& o) { return o.target.tensor; });
      reader.in.push_back(static_cast<int>(edges_.size()));
      writer.out.push_back(static_cast<int>(edges_.size()));
      edges_.push_back({from, to, a.tensor, bytes_read(w, op, a).value, crossing(*written, a),
                        loops_of(written->target)});
      if (writer.consumers.empty() || writer.consumers.back() != to) writer.consumers.push_back(to);
    }
  }
}

/// Reachability, a bit a pair.
void Graph::close() {
  const auto n = static_cast<std::size_t>(size());
  words_ = (n + 63) / 64;
  after_.assign(n * words_, 0);
  before_.assign(n * words_, 0);
  const auto add = [this](std::vector<std::uint64_t>& rows, std::size_t to, std::size_t from) {
    rows[to * words_ + from / 64] |= std::uint64_t{1} << (from % 64);
    for (std::size_t i = 0; i < words_; ++i) rows[to * words_ + i] |= rows[from * words_ + i];
  };
  for (std::size_t v = 0; v < n; ++v)
    for (int e : vertices_[v].in) add(before_, v, static_cast<std::size_t>(edge(e).from));
  for (std::size_t v = n; v-- > 0;)
    for (int e : vertices_[v].out) add(after_, v, static_cast<std::size_t>(edge(e).to));
}

double Graph::points(const LoopSet& loops) const {
  double n = 1;
  loops.each([&](std::size_t l) { n *= static_cast<double>(extents_[l]); });
  return n;
}

bool Graph::convex(std::span<const int> vertices) const {
  if (vertices.size() < 2) return true;
  const auto first = static_cast<std::size_t>(vertices.front()) / 64;
  const auto last = static_cast<std::size_t>(vertices.back()) / 64;
  std::size_t next = 0;
  // Only what lies between the first and the last can be on a path that leaves and comes back.
  for (std::size_t word = first; word <= last; ++word) {
    std::uint64_t after = 0, before = 0, own = 0;
    for (int v : vertices) {
      after |= after_[static_cast<std::size_t>(v) * words_ + word];
      before |= before_[static_cast<std::size_t>(v) * words_ + word];
    }
    for (; next < vertices.size() && static_cast<std::size_t>(vertices[next]) / 64 == word; ++next)
      own |= std::uint64_t{1} << (vertices[next] % 64);
    if ((after & before & ~own) != 0) return false;
  }
  return true;
}

namespace {

constexpr std::array<std::int64_t, 4> kColumns = {8, 16, 32, 64};  // of a block

/// Position of a vertex in an ascending list, or -1.
int position_in(std::span<const int> vertices, int v) {
  const auto it = std::lower_bound(vertices.begin(), vertices.end(), v);
  return it != vertices.end() && *it == v ? static_cast<int>(it - vertices.begin()) : -1;
}

/// Vertices joined by edges among them.
std::vector<Component> connected(const Graph& g, std::span<const int> pattern) {
  std::vector<int> leader(pattern.size());
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&leader](int i) {
    while (leader[static_cast<std::size_t>(i)] != i) i = leader[static_cast<std::size_t>(i)];
    return i;
  };
  for (std::size_t i = 0; i < pattern.size(); ++i)
    for (int e : g.vertex(pattern[i]).in) {
      const int j = position_in(pattern, g.edge(e).from);
      if (j < 0) continue;
      const int a = find(static_cast<int>(i)), b = find(j);
      leader[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
    }
  std::vector<Component> parts;
  std::vector<int> part(pattern.size(), -1);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const auto root = static_cast<std::size_t>(find(static_cast<int>(i)));
    if (part[root] < 0) {
      part[root] = static_cast<int>(parts.size());
      parts.emplace_back();
    }
    parts[static_cast<std::size_t>(part[root])].vertices.push_back(pattern[i]);
  }
  return parts;
}

/// Whether one block does it all: few elements, and a sum of all of them, or numbers alone.
bool is_one_block(const Graph& g, const Component& part) {
  constexpr double kMost = 32768;  // elements
  return std::ranges::all_of(part.vertices,
                             [&](int v) { return g.points(g.vertex(v).loops) <= kMost; }) &&
         std::ranges::any_of(part.vertices, [&](int v) {
           const Vertex& x = g.vertex(v);
           return (x.loops & ~x.reduced).empty();
         });
}

}  // namespace

std::optional<std::vector<Component>> components_of(const Graph& g, std::span<const int> pattern,
                                                    int most_operators) {
  const bool product =
      std::ranges::any_of(pattern, [&g](int v) { return g.vertex(v).kind == Kind::product; });
  if (pattern.size() > static_cast<std::size_t>(most_operators)) return std::nullopt;
  if (product && pattern.size() > 1) return std::nullopt;
  if (!g.convex(pattern)) return std::nullopt;
  std::vector<Component> parts = connected(g, pattern);
  for (Component& part : parts) {
    choose_rows(g, part);
    if (part.rows.empty() && part.vertices.size() > 1 && !is_one_block(g, part) &&
        !sum_points(g, part))
      return std::nullopt;
  }
  if (parts.size() > 1) join_sums(g, parts);
  return parts;
}

std::vector<std::vector<Component>> packings_of(const Graph& g, std::span<const int> pattern,
                                                int most_operators) {
  std::vector<std::vector<Component>> out;
  auto parts = components_of(g, pattern, most_operators);
  if (!parts) return out;
  std::vector<Component> joined = *parts;
  join_equal(g, joined);
  const bool differs = joined.size() != parts->size();
  out.push_back(std::move(*parts));
  if (differs) out.push_back(std::move(joined));
  for (std::size_t i = 0, n = out.size(); i < n; ++i) {
    std::vector<Component> points = out[i];
    bool any = false;
    for (Component& c : points) any |= sum_points(g, c);
    if (!any) continue;
    if (points.size() > 1) join_equal(g, points);
    out.push_back(std::move(points));
  }
  for (std::size_t i = 0, n = out.size(); i < n; ++i)
    for (std::int64_t columns : kColumns) {
      std::vector<Component> wide = out[i];
      bool any = false;
      for (Component& c : wide) any |= take_columns(g, c, columns);
      if (any) out.push_back(std::move(wide));
    }
  return out;
}

double ridge_of(const Device& d, const Options& o) {
  if (o.products == Products::points) return 0;
  return d.f32_flops_per_second / d.dram_bytes_per_second;
}

Device with_working_set(Device d, double bytes) {
  d.working_set = bytes;
  d.stays = lowering::stays(bytes, d.l2_bytes);
  return d;
}

Result<Device> device_of(const Machine& m) {
  const auto missing = [&m](const std::string& what) {
    return Reason{
        formatted("stitched kernels are planned for GPUs whose machine file gives {}: {} does not",
                  what, m.name)};
  };
  const auto shared = m.find("shared"), registers = m.find("registers");
  if (m.kind != "gpu" || m.units.empty() || !shared || !registers)
    return missing("SMs, shared memory and registers");
  const ComputeUnit& sm = m.units.front();
  for (std::string_view c : instruction_classes())
    if (!sm.cycles.contains(std::string(c)))
      return missing("cycles of " + std::string(c) + " instructions");
  const auto l2 =
      std::ranges::find_if(m.levels, [](const Level& l) { return l.bandwidth.value > 0; });
  if (sm.clock_hz <= 0 || sm.count < 1 || l2 == m.levels.end())
    return missing("clock and bandwidth");
  Device d{.sms = sm.count,
           .threads_per_sm = m.level(*registers).instances / sm.count,
           .blocks_per_sm = sm.blocks,
           .registers_per_sm = sm.registers,
           .shared_per_sm = m.level(*shared).capacity.value,
           .clock_hz = sm.clock_hz,
           .dram_bytes_per_second = l2->bandwidth.value};
  d.fill_bytes_per_second =
      m.level(*shared).bandwidth.value > 0 ? m.level(*shared).bandwidth.value : 64 * d.clock_hz;
  d.shared_bytes_per_second = 128.0 * static_cast<double>(d.sms) * d.clock_hz;
  d.light = sm.cycles.at("light");
  d.expensive = sm.cycles.at("expensive");
  d.shuffle = sm.cycles.at("shuffle");
  d.shared = sm.cycles.at("shared");
  d.global = sm.cycles.at("global");
  d.barrier = sm.cycles.at("barrier");
  if (const auto peak = sm.peak.find("f32"); peak != sm.peak.end())
    d.f32_flops_per_second = peak->second.value;
  const auto chosen = [&sm](const char* name, double& to) {
    if (const auto said = sm.cycles.find(name); said != sm.cycles.end()) to = said->second;
  };
  chosen("l2", d.l2);
  chosen("dram", d.dram);
  chosen("dispatch", d.dispatch);
  chosen("block", d.block);
  chosen("launch", d.launch);
  chosen("launch_unit", d.launch_unit);
  d.adds_bf16 = lowering::adds_bf16(sm.capability);
  if (l2->kind == LevelKind::cache) d.l2_bytes = static_cast<double>(l2->capacity.value);
  chosen("grid_barrier", d.grid_barrier);
  chosen("grid_barrier_block", d.grid_barrier_block);
  chosen("launch_together", d.launch_together);
  if (d.threads_per_sm < 32 || d.registers_per_sm < 1)
    return missing("threads and registers of an SM");
  d.machine = std::make_shared<const Machine>(m);
  return d;
}

}  // namespace tilewright::stitching
