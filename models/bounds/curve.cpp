// Fronts of parts that run one after the other, as one curve with plans.
#include <algorithm>

#include "models/bounds/front.h"
#include "models/bounds/trees.h"

namespace tilewright::bounds {

Curve::Curve(const Workload& w, std::vector<Part> parts)
    : workload_(w), parts_(std::move(parts)), word_(word_bytes(w)) {
  // The least memory that every part runs in, then every size at which some part moves less.
  std::int64_t least = 0;
  for (const Part& p : parts_) least = std::max(least, p.choices.front().buffer);
  std::vector<std::int64_t> sizes{least};
  for (const Part& p : parts_)
    for (const Choice& c : p.choices)
      if (c.buffer > least) sizes.push_back(c.buffer);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (std::int64_t size : sizes) {
    const Bytes buffer(size * word_);
    points_.push_back({buffer, *at(buffer)});
  }
}

const Choice* Curve::best(const Part& part, Bytes capacity) const {
  const std::int64_t words = capacity.value / word_;
  const auto past = std::ranges::upper_bound(part.choices, words, {}, &Choice::buffer);
  return past == part.choices.begin() ? nullptr : &*(past - 1);
}

std::optional<Bytes> Curve::at(Bytes capacity) const {
  std::int64_t words = 0;
  for (const Part& part : parts_) {
    const Choice* c = best(part, capacity);
    if (c == nullptr) return std::nullopt;
    words += c->traffic * part.repeats;
  }
  return Bytes(words * word_);
}

Plan Curve::plan(Bytes capacity, const std::string& level) const {
  Plan plan;
  for (const Part& part : parts_) {
    const Choice* c = best(part, capacity);
    TW_CHECK(c != nullptr, "no choice needs that little memory");
    const Node tree = part.second.valid()
                          ? chain_tree(workload_, *chain_of(workload_), *c)
                          : gemm_tree(workload_, *product_of(workload_, part.first), *c);
    plan.kernels.push_back({.level = level, .tree = tree});
  }
  return plan;
}

namespace {

/// Whether every count that the search may form stays well within 64 bits.
bool countable(const Workload& w) {
  double most = 1;
  for (const Loop& l : w.loops()) most *= static_cast<double>(l.extent);
  return most < 1e17;
}

constexpr const char* kTypes = "tensors of several element types";
constexpr const char* kTooLarge = "more multiply-adds than are counted";

}  // namespace

Result<Curve> attainable_unfused(const Workload& w, Steps steps) {
  if (word_bytes(w) == 0) return Reason{kTypes};
  if (!countable(w)) return Reason{kTooLarge};
  std::vector<Curve::Part> parts;
  for (OpId op : w.topological_order()) {
    const auto p = product_of(w, op);
    if (!p) return Reason{"operator " + w.op(op).name + " is not a matrix product"};
    parts.push_back(
        {.first = op, .second = {}, .choices = gemm_choices(*p, steps), .repeats = p->repeats});
  }
  return Curve(w, std::move(parts));
}

Result<Curve> attainable_fused(const Workload& w, Steps steps) {
  if (word_bytes(w) == 0) return Reason{kTypes};
  if (!countable(w)) return Reason{kTooLarge};
  const auto chain = chain_of(w);
  if (!chain) return Reason{"the workload is not a chain of two matrix products"};
  if (std::min({chain->M, chain->L, chain->K, chain->N}) < 2)
    return Reason{"a loop of the chain has one iteration"};
  return Curve(w, {{.first = chain->first,
                    .second = chain->second,
                    .choices = chain_choices(*chain, steps),
                    .repeats = chain->repeats}});
}

Crossover crossover(const Curve& fused, const Curve& unfused) {
  std::vector<Bytes> sizes;
  for (const Curve::Point& p : fused.points()) sizes.push_back(p.buffer);
  for (const Curve::Point& p : unfused.points()) sizes.push_back(p.buffer);
  std::ranges::sort(sizes);
  Crossover cross;
  for (const Bytes size : sizes) {
    const auto one = fused.at(size), other = unfused.at(size);
    if (!cross.first && one && other && *one < *other) cross.first = size;
    if (!one || (other && *one > *other))
      cross.always.reset();
    else if (!cross.always)
      cross.always = size;
  }
  return cross;
}

}  // namespace tilewright::bounds
