#include "bench/chain.h"

#include <algorithm>
#include <limits>
#include <span>

#include "bench/problem.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/rounding.h"

namespace tilewright::bench {
namespace {

/// The extent of a loop; 1 for a batch loop that is not there.
std::int64_t extent(const Workload& w, std::string_view name) {
  const auto loop = w.find_loop(name);
  return loop ? w.loop(*loop).extent : 1;
}

/// Whether the tensor is there, is float32, and has this shape.
bool has_shape(const Workload& w, std::string_view name,
               std::initializer_list<std::int64_t> shape) {
  const auto t = w.find_tensor(name);
  return t && w.tensor(*t).dtype == DType::f32 &&
         std::equal(w.tensor(*t).shape.begin(), w.tensor(*t).shape.end(), shape.begin(),
                    shape.end());
}

}  // namespace

std::string Chain::why_not(const Workload& w) {
  const std::int64_t batch = extent(w, "b"), m = extent(w, "m"), n = extent(w, "n"),
                     k = extent(w, "k"), l = extent(w, "l");
  const auto shaped = [&](std::string_view name, std::int64_t rows, std::int64_t columns) {
    return w.find_loop("b") ? has_shape(w, name, {batch, rows, columns})
                            : has_shape(w, name, {rows, columns});
  };
  const bool is_chain = w.operators().size() == 2 && shaped("A", m, k) && shaped("B", k, l) &&
                        shaped("D", l, n) && shaped("C", m, l) && shaped("E", m, n);
  return is_chain ? "" : "not two chained float32 matrix products, C = A B and E = C D";
}

Result<Chain> Chain::create(const Workload& w, std::uint64_t seed) {
  if (const std::string why = why_not(w); !why.empty()) return Reason{why};
  Chain c;
  c.batch_ = extent(w, "b");
  c.m_ = extent(w, "m"), c.n_ = extent(w, "n"), c.k_ = extent(w, "k"), c.l_ = extent(w, "l");
  c.a_ = aligned_floats(c.batch_ * c.m_ * c.k_), c.b_ = aligned_floats(c.batch_ * c.k_ * c.l_);
  c.d_ = aligned_floats(c.batch_ * c.l_ * c.n_), c.c_ = aligned_floats(c.batch_ * c.m_ * c.l_);
  c.e_ = aligned_floats(c.batch_ * c.m_ * c.n_);

  TensorValues inputs = random_inputs(w, seed);
  const auto copy = [&](std::string_view name, const Floats& to) {
    const std::vector<double>& from = inputs[w.find_tensor(name)->index()];
    std::transform(from.begin(), from.end(), to.get(),
                   [](double x) { return static_cast<float>(x); });
  };
  copy("A", c.a_), copy("B", c.b_), copy("D", c.d_);
  Bounded all = evaluate_bounded(w, std::move(inputs));
  c.reference_ = std::move(all.values[w.find_tensor("E")->index()]);
  c.bounds_ = std::move(all.bounds[w.find_tensor("E")->index()]);
  c.forget();
  return c;
}

void Chain::forget() const {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(c_.get(), batch_ * m_ * l_, kNaN);
  std::fill_n(e_.get(), batch_ * m_ * n_, kNaN);
}

double Chain::error() const {
  return relative_error(std::span<const float>(e_.get(), reference_.size()), reference_);
}

bool Chain::right() const {
  return compare(DType::f32, e_.get(), reference_, bounds_).worst <= 1;
}

}  // namespace tilewright::bench
