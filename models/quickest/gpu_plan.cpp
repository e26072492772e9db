// Plans on a GPU: the partition of least predicted seconds, of kernels of our own, stitched ones
// and, in small workloads, other models'.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "core/base/effort.h"
#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/plan/names.h"
#include "core/workload/access.h"
#include "core/workload/cut.h"
#include "core/workload/merge_loops.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"
#include "models/quickest/gpu.h"
#include "models/quickest/partition.h"
#include "models/stitching/column_roots.h"

namespace tilewright::quickest {
namespace {

using nlohmann::ordered_json;
using stitching::Composition;
using stitching::GpuPricer;

constexpr std::size_t kChoices = 12;  // of a kernel that are kept
constexpr int kImages = 300;          // kernels of a convolution that are priced, at least
constexpr int kMostRefused = 8;       // kernels that a target is asked about
constexpr int kMostStitched = 64;     // operators of a stitched kernel
constexpr std::size_t kMostComposed =
    24;  // operators of a workload that is also rewritten as a whole
constexpr std::size_t kMostOfLayer = 40;    // different operators, where products may be stitched
constexpr std::size_t kManySearched = 100;  // groups: later ones' blocks have fewer sizes
constexpr std::size_t kMostPadded = 4;      // loops whose rows are padded
// Plans with padded rows are priced lower beside their times than the same chains' without, 0.71
// and 0.86 in the geometric means of h200-padded-chains.json: they are taken below so much.
constexpr double kPaddedGain = 0.8;
// Longer rows of results between kernels cost nothing, but prices are near one another.
constexpr double kLongerRowsGain = 0.97;
constexpr double kChannelsGain = 0.85;  // copies are priced below their times
constexpr double kRowsGain = 0.95;      // of operands that are written first
constexpr double kMergedGain = 0.95;    // by which programs take loops that go together as one
constexpr double kNearFloor = 1.05;     // of what no plan is below: nobody else is asked
constexpr double kFarAbove = 2;
constexpr std::int64_t kTheirEffort = 5;      // of each model and operator, in large workloads
constexpr std::int64_t kTheirMost = 200'000;  // of each model, in others: a second or two
constexpr double kTheirGain = 0.98;           // of our own kernels' seconds
constexpr const char *kLongerRows = "pad-results",
                     *kPad = "pad:", *kRowsFirst = "materialise-patches",
                     *kPlaced = "place-results";

double bytes_of(const Workload& w) {
  double all = 0;
  for (const Tensor& t : w.tensors()) all += static_cast<double>(t.bytes().value);
  return all;
}

struct Known : KnownGroups {
  std::set<std::string> unheard = {};  ///< models whose search of a whole would take too long
  /// Products whose loops lie apart, before rewrites; of few operators, all products.
  std::set<std::string> apart = {};
  std::set<std::string> asked = {};  ///< all operators, before rewrites
  /// Of the workload as it is: what rewrites change in a large one is little, and its other groups
  /// are found again.
  double working_set = 0;
  int effort = 0;
};

class GpuPlanner {
 public:
  GpuPlanner(const Question& q, const stitching::Device& d, bool rewrites, Known& known)
      : q_(q),
        known_(known),
        device_(d),
        rewrites_(rewrites),
        priced_(priced_machine(q)),
        working_set_(bytes_of(*q.workload)) {
    const bool again = known.effort > 0 && q.workload->operators().size() > kMostComposed;
    if (again) working_set_ = known.working_set;
    device_ = stitching::with_working_set(std::move(device_), working_set_);
    device_.machine = q.machine;
    // Fewer kernels for each group where there are more groups. Layers of equal structure are
    // looked up once, so a network of twelve has as much for each as a layer alone.
    std::set<std::string> shapes;
    for (const Part& part : cut_each(*q.workload))
      shapes.insert(signature(subgraph(*q.workload, part)));
    effort_ = static_cast<int>(std::clamp<std::size_t>(5000 / shapes.size(), 60, 800));
    if (again) effort_ = known.effort;
    if (known.effort == 0) known.effort = effort_, known.working_set = working_set_;
    stitches_products_ = shapes.size() <= kMostOfLayer;
    const std::set<OpId> products = with_forms(*q.workload);
    if (auto graph =
            stitching::Graph::create(q.workload, stitching::ridge_of(device_, {}), &products)) {
      graph.value().priced().machine = device_.machine;
      graph_ = std::make_shared<const stitching::Graph>(std::move(graph).value());
      vertex_.assign(q.workload->operators().size(), -1);
      for (int v = 0; v < graph_->size(); ++v) vertex_[graph_->vertex(v).op.index()] = v;
    }
  }

  /// Of operators without products: a guess. The search for a stitched kernel takes tens of
  /// milliseconds.
  std::optional<double> rough(const Part& ops) const {
    if (graph_ == nullptr) return std::nullopt;
    stitching::Pattern pattern;
    for (OpId op : ops) {
      if (graph_->vertex(vertex_[op.index()]).kind == stitching::Kind::product) return std::nullopt;
      pattern.push_back(vertex_[op.index()]);
    }
    std::ranges::sort(pattern);
    auto parts = stitching::components_of(*graph_, pattern, kMostStitched);
    if (!parts) return std::numeric_limits<double>::infinity();
    stitching::join_equal(*graph_, *parts);
    return stitching::guessed_seconds(*graph_, device_, *parts);
  }

  /// Contractions below the ridge are stitched like reductions, and those that have no rows,
  /// columns or depth of a tile, as windows over each channel alone.
  bool is_product(OpId op) const {
    return graph_ == nullptr ? q_.workload->is_contraction(op)
                             : graph_->vertex(vertex_[op.index()]).kind == stitching::Kind::product;
  }

  std::optional<Best> find(const Group& group) {
    const std::string under =
        formatted("{} {} {} {}", device_.stays, effort_, rewrites_, stitches_products_);
    return known_.find(under, group, [&] {
      options_.few_sizes = known_.size() > kManySearched;
      std::optional<Best> best = search(group);
      if (best) merge(group, *best);
      return best;
    });
  }

  /// What others propose of the whole, where that is faster: they put phases with barriers of all
  /// blocks into one kernel, and stitch what no two neighbours gain by.
  void ask_others(Partition& found) const {
    const double floor = floor_of_whole();
    if (found.seconds <= kNearFloor * floor) return;
    // Searches by seconds take seconds themselves where there are more operators.
    const bool few = cut_each(*q_.workload).size() <= kMostExact;
    const bool all = few || found.seconds > kFarAbove * floor;
    const auto operators = static_cast<std::int64_t>(q_.workload->operators().size());
    Group whole{.ops = {}, .workload = q_.workload};
    for (std::size_t i = 0; i < q_.workload->operators().size(); ++i) whole.ops.emplace_back(i);
    std::optional<Best> best = Best{.seconds = kTheirGain * found.seconds};
    for (const Model* m : q_.others) {
      if (!all && m->times) continue;
      ask(*m, whole, best,
          operators > static_cast<std::int64_t>(kMostComposed) ? kTheirEffort * operators
                                                               : kTheirMost);
    }
    if (best->plan.kernels.empty()) return;
    found.groups = {std::move(whole)};
    found.seconds = best->seconds;
    found.best = {std::move(*best)};
  }

 private:
  /// Operators that the forms of products are for.
  static std::set<OpId> with_forms(const Workload& w) {
    std::set<OpId> found;
    for (const GpuProduct& p : gpu_products(w)) found.insert(*w.find_op(p.op));
    return found;
  }

  std::optional<Best> search(const Group& group) const {
    const std::vector<GpuProduct> products = gpu_products(*group.workload);
    std::optional<Best> best;
    if (products.empty() || group.ops.size() == 1) stitched(group, best);
    if (!products.empty()) {
      blocks(group.workload, products, {}, best);
      if (rewrites_ && products.size() == 2) online(group.workload, best);
      if (group.ops.size() > 1 && may_be_stitched(group, best)) stitched(group, best);
      if (group.ops.size() == 1 && products.front().window && best && adds_up_within(group, *best))
        stitched(group, best, false);
    }
    // Others' plans are of these forms, or slower; their searches take seconds.
    if (!best && group.ops.size() == 1)
      for (const Model* m : q_.others) ask(*m, group, best, kTheirMost);
    return best;
  }

  /// Products whose loops lie apart are priced as programs have them: loops that always go together
  /// are one there. So are the copies that they read after rewrites.
  void merge(const Group& group, Best& best) const {
    const Workload& w = *group.workload;
    const auto among = [&](const std::set<std::string>& names) {
      return [&](const Operator& op) { return names.contains(op.name); };
    };
    if (best.plan.kernels.size() > 1 || !best.rewrites.empty() ||
        (std::ranges::none_of(w.operators(), among(known_.apart)) &&
         std::ranges::any_of(w.operators(), among(known_.asked))))
      return;
    const std::optional<Workload> merged = merged_loops_of_parts(without_names(w));
    if (!merged) return;
    Group whole{.ops = {}, .workload = std::make_shared<const Workload>(*merged)};
    for (std::size_t i = 0; i < w.operators().size(); ++i) whole.ops.emplace_back(i);
    const std::optional<Best> its = search(whole);
    if (!its || its->seconds >= kMergedGain * best.seconds) return;
    best.seconds = its->seconds;
    best.merged = true;
  }

  /// Whether fused multiply-adds take no longer than a plan: windows of few channels, as in groups.
  bool adds_up_within(const Group& group, const Best& best) const {
    return 2 * multiply_adds(*group.workload) < device_.f32_flops_per_second * best.seconds;
  }
  static double multiply_adds(const Workload& w) {
    double all = 0;
    for (std::size_t i = 0; i < w.operators().size(); ++i) {
      if (!w.is_contraction(OpId(i))) continue;
      double points = 1;
      for (LoopId l : w.op(OpId(i)).loops) points *= static_cast<double>(w.loop(l).extent);
      all += points;
    }
    return all;
  }

  /// Small products with what is around them: a stitched kernel reads an operand of each
  /// multiply-add from shared memory at best. Only of workloads of few different operators, as each
  /// search takes tens of milliseconds.
  bool may_be_stitched(const Group& group, const std::optional<Best>& best) const {
    if (!stitches_products_) return false;
    return !best ||
           4 * multiply_adds(*group.workload) / device_.shared_bytes_per_second < best->seconds;
  }

  /// What no plan of the whole is below: a launch and compulsory bytes.
  double floor_of_whole() const {
    double bytes = 0;
    for (std::size_t t = 0; t < q_.workload->tensors().size(); ++t)
      if (q_.workload->is_output(TensorId(t)) || !q_.workload->producer(TensorId(t)).valid())
        bytes += static_cast<double>(q_.workload->tensors()[t].bytes().value);
    return (device_.launch + device_.block + device_.home()) / device_.clock_hz +
           device_.brought_seconds(bytes);
  }

  /// Refused by nobody, and faster than what there is.
  bool takes(const Schedule& s, double seconds, const std::optional<Best>& best) const {
    return (!best || seconds < best->seconds) && (!q_.refuses || !q_.refuses(s));
  }

  void blocks(std::shared_ptr<const Workload> w, const std::vector<GpuProduct>& products,
              std::vector<std::string> rewrites, std::optional<Best>& best) const {
    const auto pricer = GpuPricer::of(w, *priced_, working_set_);
    std::vector<Form> forms = gpu_forms(*w, products);
    if (!pricer) return;
    bool pairs = false;  // of warpgroups: what is none of them takes long to price, and loses
    const auto price_of = [&](Kernel k) -> std::optional<Choice> {
      // Whether it fits is said by its price, and once more of what is chosen.
      const auto s = legal({.kernels = {k}}, w, q_);
      if (!s || (pairs && !lowering::warpgroup_pair(*s, 0) && !lowering::warpgroup_product(*s, 0)))
        return std::nullopt;
      const auto t = pricer->kernel(*s, 0);
      if (!t) return std::nullopt;
      return Choice{.kernel = std::move(k), .seconds = t->seconds};
    };
    const auto priced = [&](Kernel k) { return known_.seen.seen(price_of(std::move(k))); };
    // Blocks of an image, without tensor cores: rows, lines and parts of the depth move together.
    const bool images = pricer->rates().mma == 0 &&
                        std::ranges::any_of(products, [](const GpuProduct& p) { return p.window; });
    std::vector<Choice> all =
        images ? Descent<Choice>(priced, std::max(effort_, kImages)).sampled(forms)
               : Descent<Choice>(priced, effort_).all_or_run(forms);
    if (pricer->rates().wgmma > 0) {
      forms = warpgroup_forms(*w, products);
      pairs = products.size() == 2;
      constexpr int kAll = std::numeric_limits<int>::max();
      for (Choice& c : Descent<Choice>(priced, kAll).all_or_run(forms)) all.push_back(std::move(c));
      pairs = false;
      forms = image_forms(*w, products);
      for (Choice& c : Descent<Choice>(priced, kAll).all_or_run(forms)) all.push_back(std::move(c));
    }
    if (pricer->rates().mma > 0 || w->dtype() == DType::f32) {
      forms = window_forms(*w, products, pricer->rates().clusters);
      for (Choice& c : Descent<Choice>(priced, 2 * effort_).run(forms)) all.push_back(std::move(c));
    }
    std::ranges::stable_sort(all, {}, &Choice::seconds);
    int refused = 0;
    while (!all.empty() && refused < kMostRefused) {
      if (best && all.front().seconds >= best->seconds) return;
      const auto s = resolved({.kernels = {all.front().kernel}}, w, q_);
      if (s && (!q_.refuses || !q_.refuses(*s))) break;
      // A target that refuses clusters refuses them all.
      if (all.front().kernel.launch.cluster.value_or(1) > 1)
        std::erase_if(all, [](const Choice& c) { return c.kernel.launch.cluster.value_or(1) > 1; });
      else
        all.erase(all.begin());
      ++refused;
    }
    if (all.empty() || refused == kMostRefused) return;
    if (all.size() > kChoices) all.resize(kChoices);
    best = Best{.seconds = all.front().seconds,
                .plan = {.kernels = {all.front().kernel}},
                .rewrites = std::move(rewrites)};
    best->others = std::move(all);
  }

  /// Two products with a softmax between, block by block; of one that divides before the second
  /// product, after it has been written so that it divides behind.
  void online(const std::shared_ptr<const Workload>& w, std::optional<Best>& best) const {
    for (std::vector<std::string> rewrites : {std::vector<std::string>{}, {kLate}}) {
      const auto from = rewritten(w, rewrites);
      if (from == nullptr) continue;
      rewrites.push_back(kOnline);
      if (auto to = rewritten(w, rewrites))
        return blocks(std::move(to), gpu_products(*from), rewrites, best);
    }
  }

  /// Of one operator's sum: a result that no node stores is held until another takes its place,
  /// which takes registers, and ptxas spills (128 x 128 in f32 by eight warps).
  static void store_at_end(Node& tree, const Operator& op, const Workload& w) {
    Node* n = &tree;
    while (n->kind == Node::Kind::loop && n->binding == Binding::grid) n = &n->children.front();
    const Node* inner = n;
    while (inner->kind == Node::Kind::loop && inner->binding == Binding::seq)
      inner = &inner->children.front();
    if (inner == n || inner->kind != Node::Kind::compute || op.outputs.size() != 1) return;
    Node stored = store(w.tensor(op.outputs.front().target.tensor).name, {}, false);
    *n = sequence({std::exchange(*n, {}), std::move(stored)});
  }

  /// One kernel with units, or of a single product in the tiles of models/stitching. `forms`: what
  /// other forms are for is such a product, else a sum like others.
  void stitched(const Group& group, std::optional<Best>& best, bool forms = true) const {
    const std::set<OpId> products = forms ? with_forms(*group.workload) : std::set<OpId>();
    auto graph =
        stitching::Graph::create(group.workload, stitching::ridge_of(device_, options_), &products);
    if (!graph) return;
    // Packs have parts in common.
    if (graph_ != nullptr && forms) graph.value().share_schedules(*graph_);
    stitching::Pattern all;
    for (int v = 0; v < graph->size(); ++v) all.push_back(v);
    const std::vector<stitching::Pattern> patterns{all};
    const auto price = stitching::price(*graph, device_, patterns, options_);
    if (!price || price->kernels.size() != 1) return;
    known_.seen.generated += price->kernels.front().schedules;
    known_.seen.priced += price->kernels.front().schedules;
    Plan plan = stitching::write_plan(*graph, device_, *price, q_.machine).plan;
    if (graph->size() == 1)
      store_at_end(plan.kernels.front().tree, group.workload->operators()[0], *group.workload);
    const auto s = resolved(plan, group.workload, q_);
    const auto pricer = GpuPricer::of(group.workload, *priced_, working_set_);
    if (!s || !pricer) return;
    const auto seconds = pricer->seconds(*s);
    if (!seconds) return;
    Best its{.seconds = *seconds, .plan = plan};
    its.others.push_back({.kernel = plan.kernels.front(), .seconds = *seconds});
    if (takes(*s, *seconds, best)) {
      best = std::move(its);
      return;
    }
    if (best || !q_.refuses) return;
    int asked = 0;
    for (const stitching::WrittenKernel& k :
         stitching::kernel_choices(*graph, device_, *price, 0, options_)) {
      if (++asked > kMostRefused) return;
      const auto other = resolved({.kernels = {k.kernel}}, group.workload, q_);
      if (!other) continue;
      const auto its_seconds = pricer->seconds(*other);
      if (!its_seconds || !takes(*other, *its_seconds, best)) continue;
      best = Best{.seconds = *its_seconds, .plan = {.kernels = {k.kernel}}};
      best->others.push_back({.kernel = k.kernel, .seconds = *its_seconds});
      return;
    }
  }

  /// What the model proposes with so many units of effort at most (core/base/effort.h).
  void ask(const Model& m, const Group& group, std::optional<Best>& best,
           std::int64_t units) const {
    if (m.propose == nullptr) return;
    const Effort limit(units);
    Question asked = q_.to_other();
    asked.workload = group.workload;
    try {
      const Result<Proposal> p = m.propose(asked, Settings(m.options, {}, "model " + m.name));
      if (!p || (!rewrites_ && !p->rewrites.empty())) return;
      ++known_.seen.generated;
      const auto w = rewritten(group.workload, p->rewrites);
      if (w == nullptr || no_workloads(p->plan, *w))
        return;  // nobody could run it kernel by kernel
      const auto s = resolved(p->plan, w, q_);
      const auto pricer = GpuPricer::of(w, *priced_, working_set_);
      if (!s || !pricer) return;
      const auto seconds = pricer->seconds(*s);
      known_.seen.priced += seconds ? 1 : 0;
      if (seconds && takes(*s, *seconds, best))
        best = Best{.seconds = *seconds, .by = m.name, .plan = p->plan, .rewrites = p->rewrites};
    } catch (const InputError&) {
      return;  // what the model cannot read
    } catch (const OutOfEffort&) {
      known_.unheard.insert(m.name);
    }
  }

  const Question& q_;
  Known& known_;
  stitching::Device device_;
  bool rewrites_;
  std::shared_ptr<const Machine> priced_;
  double working_set_;
  int effort_ = 0;
  bool stitches_products_ = false;
  stitching::Options options_ = {};
  std::shared_ptr<const stitching::Graph> graph_;  ///< of the whole workload
  std::vector<int> vertex_;                        ///< by operator
};

}  // namespace

namespace {

/// The group's kernel at what it takes with merged loops.
void with_merged_loops(const Best& best, const Workload& w, const Part& ops, Proposal& out) {
  ordered_json names = ordered_json::array();
  for (const OpId op : ops) names.push_back(w.op(op).name);
  for (ordered_json& kernel : out.detail["kernels_predicted"]) {
    if (kernel["operators"] != names) continue;
    const double apart = kernel["seconds"].get<double>();
    if (best.seconds >= apart) return;
    if (!kernel.contains("once") && out.price.traffic.seconds)
      *out.price.traffic.seconds -= apart - best.seconds;
    kernel["seconds"] = best.seconds;
    kernel["seconds_of_loops_apart"] = apart;
    return;
  }
}

/// Whether rewrites of the whole have made copies for products to read.
bool copies_first(const Composition& composed) {
  return std::ranges::any_of(composed.rewrites, [](const std::string& name) {
    return name.starts_with(kPad) || name.starts_with(kChannelsLast) ||
           name.starts_with(kMatrices) || name == kRowsFirst;
  });
}

/// Of the workload after rewrites of the whole.
Result<Planned> planned(const Question& asked, const Composition& composed,
                        const stitching::Device& device, const Settings& settings, Known& known) {
  Question q = asked;
  q.workload = composed.workload;
  // Scores of chunks gain nothing over those of all keys where they go through memory.
  const bool chunks = !composed.rewrites.empty() && composed.rewrites.back().starts_with(kChunks);
  const std::vector<GpuProduct> of_chunks =
      chunks ? gpu_products(*q.workload) : std::vector<GpuProduct>();
  const std::size_t together = of_chunks.size();
  Part pair;
  if (together == 2)
    for (const GpuProduct& p : of_chunks) pair.push_back(*q.workload->find_op(p.op));
  // Such a copy gains nothing that never goes home.
  const auto copies = [&](const Workload& w) {
    return copies_first(composed) && std::ranges::any_of(w.operators(), [&](const Operator& op) {
             return std::ranges::find(asked.workload->operators(), op.name, &Operator::name) ==
                    asked.workload->operators().end();
           });
  };
  std::string why;
  // Where the parts' rewrites make no rewrite of the whole, without them.
  for (const bool rewrites : {true, false}) {
    if (rewrites && settings.flag(kAsWritten)) continue;
    GpuPlanner planner(q, device, rewrites, known);
    Partitioner partitioner(
        q.workload,
        [&](const Group& g) {
          const bool copied = copies(*g.workload);
          const std::size_t products =
              together > 0 || copied ? gpu_products(*g.workload).size() : 0;
          return products > 0 && (copied || products < together) ? std::nullopt : planner.find(g);
        },
        [&](const Part& ops) { return planner.rough(ops); },
        [&](OpId op) { return planner.is_product(op); }, constant_operators(*q.workload));
    Result<Partition> found = partitioner.run(q, pair);
    if (!found) return Reason{found.reason()};
    if (composed.rewrites.empty()) planner.ask_others(found.value());
    Result<Proposal> joined = joined_proposal(q, *found);
    why = joined ? "" : joined.reason();
    if (!joined) continue;
    Proposal out = std::move(joined).value();
    Question whole = q;
    whole.workload = rewritten(q.workload, out.rewrites);
    Result<Price> price = price_on_gpu(whole, out.plan);
    if (!price) return Reason{price.reason()};
    out.price = std::move(price).value();
    out.detail.update(out.price.detail);
    for (std::size_t k = 0; k < out.plan.kernels.size(); ++k)
      out.detail["kernels_predicted"][k]["by"] = out.plan.kernels[k].by;
    Planned all;
    for (std::size_t g = 0; g < found->groups.size(); ++g) {
      all.groups.push_back(found->groups[g].ops);
      all.took.push_back(found->best[g].seconds);
      if (found->best[g].merged)
        with_merged_loops(found->best[g], *q.workload, all.groups.back(), out);
    }
    out.detail["seconds"] = or_null(out.price.traffic.seconds);
    describe(partitioner, *found, settings.flag("why"), out.detail);
    all.proposal = std::move(out);
    return all;
  }
  return Reason{why};
}

std::vector<std::string> names_of(const Workload& w, const std::vector<OpId>& ops) {
  std::vector<std::string> names;
  for (const OpId op : ops) names.push_back(w.op(op).name);
  return names;
}

/// Products whose loops lie apart: those that a rewrite gives rows or matrices.
std::set<std::string> products_apart(const Workload& w,
                                     const std::shared_ptr<const Workload>& rows) {
  std::set<std::string> names;
  for (const bool windows : {false, true})
    for (std::string& name : names_of(w, no_products_of_matrices(w, windows)))
      names.insert(std::move(name));
  if (rows == nullptr) return names;
  for (const Operator& op : rows->operators()) {
    if (w.find_op(op.name)) continue;
    for (const Output& o : op.outputs)
      for (const OpId reader : rows->consumers(o.target.tensor))
        if (rows->is_contraction(reader)) names.insert(rows->op(reader).name);
  }
  return names;
}

/// Products that read rows which begin anywhere, with padded ones: of the quickest plan's copies;
/// where it has none, of the workload as it is and of copies that are matrices.
void try_padded(Wholes& wholes, const std::shared_ptr<const Workload>& w) {
  std::vector<Composition> all;
  if (wholes.best() && copies_first(wholes.best()->composed)) {
    all.push_back(wholes.best()->composed);
  } else {
    all.push_back({.rewrites = {}, .workload = w});
    Wholes::try_names(all.front(), kMatrices, names_of(*w, no_products_of_matrices(*w, false)),
                      false, [&](const Composition& c) {
                        all.push_back(c);
                        return false;
                      });
  }
  const auto try_each = [&](const Wholes::Tried& tried) {
    for (const Composition& from : all) {
      std::vector<std::string> odd;
      for (const LoopId l : loops_of_odd_rows(*from.workload))
        odd.push_back(from.workload->loop(l).name);
      if (odd.size() <= kMostPadded) Wholes::try_names(from, kPad, odd, true, tried);
    }
  };
  wholes.takes_best_of(try_each, kPaddedGain);
}

Result<Proposal> proposed(const Question& q, const Settings& settings) {
  const Result<stitching::Device> device = stitching::device_of(*priced_machine(q));
  if (!device) return Reason{device.reason()};
  const auto pricer = GpuPricer::of(q.workload, *priced_machine(q));
  if (!pricer) return Reason{pricer.reason()};
  const bool rewrites = !settings.flag(kAsWritten);
  const auto rows = rewritten(q.workload, {kRowsFirst});
  Known known;
  known.apart = products_apart(*q.workload, rows);
  for (const Operator& op : q.workload->operators()) known.asked.insert(op.name);
  // Small workloads also as they are after other rewrites of the whole, and computing again.
  const bool small = rewrites && q.workload->operators().size() <= kMostComposed;
  for (std::size_t i = 0; small && i < q.workload->operators().size(); ++i)
    if (q.workload->is_contraction(OpId(i))) known.apart.insert(q.workload->operators()[i].name);
  const auto plan = [&](const Composition& c) { return planned(q, c, *device, settings, known); };
  Wholes wholes(q.workload, plan, rewrites);
  const Result<Planned>& best = wholes.best();
  const auto tried = [&](const Composition& c) { return wholes.tries(c); };
  if (rewrites && rows != nullptr) wholes.tries({{kRowsFirst}, rows}, kRowsGain);
  for (const bool windows : {false, true})
    if (rewrites) wholes.try_matrices(windows, small, small ? kLongerRows : "");
  if (small) {
    for (const Composition& c : stitching::compositions(*q.workload)) tried(c);
    try_chunks(q.workload, static_cast<double>(device->sms), pricer->rates().wgmma > 0, tried);
    if (auto longer = rewritten(q.workload, {kLongerRows}))
      wholes.takes(wholes.planned({.rewrites = {kLongerRows}, .workload = std::move(longer)}),
                   kLongerRowsGain);
    try_padded(wholes, q.workload);
  }
  if (rewrites && pricer->rates().wgmma > 0)
    wholes.takes_best_of(
        [&](const Wholes::Tried& t) {
          Wholes::try_names({.workload = q.workload}, kChannelsLast, channels_to_try(*q.workload),
                            small, t);
        },
        kChannelsGain);
  if (small) {
    for (bool gains = best.ok(); gains;) {
      gains = false;
      for (Composition& c : recomputed(best->composed.workload, best->groups)) {
        const std::vector<std::string>& before = best->composed.rewrites;
        c.rewrites.insert(c.rewrites.begin(), before.begin(), before.end());
        gains = tried(c);
        if (gains) break;
      }
    }
  }
  if (rewrites) wholes.try_hoisting();
  Result<Proposal> out = std::move(wholes).proposal();
  if (!out) return out;
  out.value().detail["candidates"] = known.seen.json();
  if (!known.unheard.empty()) out.value().detail["search_too_long"] = known.unheard;
  return out;
}

}  // namespace

Result<Proposal> propose_on_gpu(const Question& q, const Settings& settings) {
  Result<Proposal> best = proposed(q, settings);
  // Of few operators, what the whole search makes of products that write where a move does.
  if (settings.flag(kAsWritten) || q.workload->operators().size() > kMostComposed) return best;
  Question other = q;
  other.workload = rewritten(q.workload, {kPlaced});
  if (other.workload == nullptr) return best;
  Result<Proposal> placed = proposed(other, settings);
  const auto seconds = [](const Result<Proposal>& p) {
    return p ? p->price.traffic.seconds.value_or(std::numeric_limits<double>::infinity())
             : std::numeric_limits<double>::infinity();
  };
  if (seconds(placed) >= seconds(best)) return best;
  placed.value().rewrites.insert(placed.value().rewrites.begin(), kPlaced);
  return placed;
}

}  // namespace tilewright::quickest
