#include <algorithm>
#include <limits>

#include "core/workload/reference/evaluate.h"
#include "core/workload/rewrite/rewrite.h"

namespace tilewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The inputs of `after`, by name, from those of `before`; false where one is missing or differs.
bool carry_over(const Workload& before, const TensorValues& from, const Workload& after,
                TensorValues& to) {
  to.resize(after.tensors().size());
  for (std::size_t t = 0; t < after.tensors().size(); ++t) {
    if (!after.is_input(TensorId(t))) continue;
    const auto same = before.find_tensor(after.tensors()[t].name);
    if (!same || !before.is_input(*same) || before.tensor(*same) != after.tensors()[t])
      return false;
    to[t] = from[same->index()];
  }
  return true;
}

// The block sizes that `after` is evaluated with; 0 is the whole reduction at once.
std::vector<std::int64_t> blocks_for(const Workload& w) {
  std::vector<std::int64_t> blocks{0};
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    if (!w.operators()[i].running || w.reduction_loops(OpId(i)).empty()) continue;
    const std::int64_t extent = w.loop(w.reduction_loops(OpId(i)).front()).extent;
    // One at a time, about thirds with a partial last block, and almost everything.
    for (std::int64_t n : {std::int64_t{1}, extent / 3 + 1, extent - 1})
      if (n > 0 && std::find(blocks.begin(), blocks.end(), n) == blocks.end()) blocks.push_back(n);
  }
  return blocks;
}

}  // namespace

const std::vector<Rewrite>& rewrites() {
  static const std::vector<Rewrite> all{online_softmax(),
                                        compose(),
                                        compose_gathers(),
                                        compose_all(),
                                        split_variance(),
                                        split_sums(),
                                        split_running(),
                                        share_loops(),
                                        scale_late(),
                                        copies(),
                                        inlining(),
                                        hoist(),
                                        pad(),
                                        materialise_gathers(),
                                        materialise_patches(),
                                        materialise_matrices(),
                                        materialise_windows(),
                                        materialise_borders(),
                                        materialise_orders(),
                                        materialise_across(),
                                        pad_results(),
                                        place_results(),
                                        channels_last()};
  return all;
}

Result<Workload> apply(std::string_view name, const Workload& w) {
  const std::size_t colon = name.find(':');
  std::vector<std::string> names;
  for (const Rewrite& r : rewrites()) {
    names.push_back(r.form());
    if (r.name != name.substr(0, colon)) continue;
    if (r.argument.empty() != (colon == std::string_view::npos))
      throw InputError({.field = "rewrite",
                        .value = "'" + std::string(name) + "'",
                        .problem = r.argument.empty() ? "takes no argument" : "lacks its argument",
                        .accepted = r.form()});
    return r.argument.empty() ? r.function(w) : r.with(w, name.substr(colon + 1));
  }
  throw InputError({.field = "rewrite",
                    .value = "'" + std::string(name) + "'",
                    .problem = "is not a rewrite",
                    .accepted = join(names)});
}

RewriteCheck check_rewrite(const Workload& before, const Workload& after, std::uint64_t seed) {
  const TensorValues inputs = random_inputs(before, seed);
  TensorValues carried;
  if (!carry_over(before, inputs, after, carried)) return {kInfinity, "inputs differ"};
  if (before.outputs().size() != after.outputs().size()) return {kInfinity, "outputs differ"};
  const TensorValues wanted = evaluate(before, inputs);
  RewriteCheck worst;
  for (std::int64_t block : blocks_for(after)) {
    const TensorValues got = evaluate(after, carried, {.running_block = block});
    for (TensorId t : before.outputs()) {
      const Tensor& tensor = before.tensor(t);
      const auto same = after.find_tensor(tensor.name);
      if (!same || !after.is_output(*same) || after.tensor(*same) != tensor)
        return {kInfinity, "output " + tensor.name + " differs"};
      const double error =
          relative_error(std::span<const double>(got[same->index()]), wanted[t.index()]);
      // The first is recorded even where it is zero, so that `where` always says what was compared.
      if (worst.where.empty() || error > worst.relative_error)
        worst = {error, tensor.name +
                            (block == 0 ? ", whole" : ", in blocks of " + std::to_string(block))};
    }
  }
  return worst;
}

}  // namespace tilewright
