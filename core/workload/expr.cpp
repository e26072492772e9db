// The functions that expressions may call, and how operators combine.
#include "core/workload/expr.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/workload/expr_rows.h"
#include "core/workload/workload_limits.h"

namespace tilewright {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;

constexpr std::array kFunctions = {
    ExprFunction{"add", 2, [](const double* a) { return a[0] + a[1]; }, 1},
    ExprFunction{"sub", 2, [](const double* a) { return a[0] - a[1]; }, 1},
    ExprFunction{"mul", 2, [](const double* a) { return a[0] * a[1]; }, 1},
    ExprFunction{"div", 2, [](const double* a) { return a[0] / a[1]; }, 0},
    ExprFunction{"max", 2, [](const double* a) { return larger(a[0], a[1]); }, 1},
    ExprFunction{"min", 2, [](const double* a) { return smaller(a[0], a[1]); }, 1},
    ExprFunction{"pow", 2, [](const double* a) { return std::pow(a[0], a[1]); }, 0},
    ExprFunction{"lt", 2, [](const double* a) { return a[0] < a[1] ? 1.0 : 0.0; }, 1},
    ExprFunction{"select", 3, [](const double* a) { return a[0] != 0.0 ? a[1] : a[2]; }, 1},
    ExprFunction{"neg", 1, [](const double* a) { return -a[0]; }, 1},
    ExprFunction{"exp", 1, [](const double* a) { return std::exp(a[0]); }, 0},
    ExprFunction{"log", 1, [](const double* a) { return std::log(a[0]); }, 0},
    ExprFunction{"sqrt", 1, [](const double* a) { return std::sqrt(a[0]); }, 0},
    ExprFunction{"rsqrt", 1, [](const double* a) { return 1.0 / std::sqrt(a[0]); }, 0},
    ExprFunction{"recip", 1, [](const double* a) { return 1.0 / a[0]; }, 0},
    ExprFunction{"relu", 1, [](const double* a) { return a[0] < 0.0 ? 0.0 : a[0]; }, 1},
    ExprFunction{"tanh", 1, [](const double* a) { return std::tanh(a[0]); }, 0},
    ExprFunction{"sigmoid", 1, [](const double* a) { return 1.0 / (1.0 + std::exp(-a[0])); }, 0},
    ExprFunction{"erf", 1, [](const double* a) { return std::erf(a[0]); }, 0},
    ExprFunction{"gelu", 1,
                 [](const double* a) { return 0.5 * a[0] * (1.0 + std::erf(a[0] * kSqrtHalf)); },
                 0},
    ExprFunction{"abs", 1, [](const double* a) { return std::fabs(a[0]); }, 1},
    ExprFunction{"square", 1, [](const double* a) { return a[0] * a[0]; }, 1},
    ExprFunction{"floor", 1, [](const double* a) { return std::floor(a[0]); }, 1},
    ExprFunction{"round", 1, [](const double* a) { return std::nearbyint(a[0]); }, 1},
    ExprFunction{"sin", 1, [](const double* a) { return std::sin(a[0]); }, 0},
    ExprFunction{"cos", 1, [](const double* a) { return std::cos(a[0]); }, 0},
};

// Of the function in that place of the table: known where this is compiled, so that it is inlined.
template <std::size_t Place>
void over_row(const double* const* args, std::int64_t n, double* to) {
  constexpr int kArity = kFunctions[Place].arity;
  std::array<const double*, kArity> from{};
  std::copy_n(args, kArity, from.begin());
  for (std::int64_t i = 0; i < n; ++i) {
    std::array<double, kArity> values{};
    for (std::size_t a = 0; a < from.size(); ++a) values[a] = from[a][i];
    to[i] = kFunctions[Place].evaluate(values.data());
  }
}

template <std::size_t... Places>
constexpr std::array<RowFunction, sizeof...(Places)> rows_of(std::index_sequence<Places...>) {
  return {over_row<Places>...};
}
constexpr auto kRowFunctions = rows_of(std::make_index_sequence<kFunctions.size()>{});

}  // namespace

std::span<const ExprFunction> expr_functions() { return kFunctions; }

RowFunction row_function(const ExprFunction& f) {
  const auto place = static_cast<std::size_t>(&f - kFunctions.data());
  TW_CHECK(place < kRowFunctions.size(), "a function that is not of the table");
  return kRowFunctions[place];
}

const ExprFunction* find_expr_function(std::string_view name) {
  for (const ExprFunction& f : kFunctions)
    if (f.name == name) return &f;
  return nullptr;
}

std::string_view name_of(Combine c) {
  switch (c) {
    case Combine::assign:
      return "=";
    case Combine::sum:
      return "+=";
    case Combine::product:
      return "*=";
    case Combine::max:
      return "max=";
    case Combine::min:
      return "min=";
  }
  return "?";
}

double identity_of(Combine c) {
  switch (c) {
    case Combine::assign:
    case Combine::sum:
      return 0.0;
    case Combine::product:
      return 1.0;
    case Combine::max:
      return -std::numeric_limits<double>::infinity();
    case Combine::min:
      return std::numeric_limits<double>::infinity();
  }
  return 0.0;
}

bool names_outputs(const Expr& e) {
  if (e.kind == Expr::Kind::before || e.kind == Expr::Kind::after) return true;
  return std::any_of(e.args.begin(), e.args.end(), names_outputs);
}

std::optional<std::string> why_no_value(const WorkloadSpec& spec, LoopId id) {
  const Loop& loop = spec.loops[id.index()];
  const auto same = [&](const Tensor& t) { return t.name == loop.name; };
  if (std::any_of(spec.tensors.begin(), spec.tensors.end(), same)) return "is also a tensor";
  if (loop.name == "inf") return "is also infinity";
  if (loop.extent > kMaxIndexed)
    return "has more than " + std::to_string(kMaxIndexed) + " iterations, which f32 cannot count";
  return std::nullopt;
}

bool is_whole(const WorkloadSpec& spec, const Operator& op, const Expr& e) {
  switch (e.kind) {
    case Expr::Kind::input:
      return is_integer(
          spec.tensors[op.inputs[static_cast<std::size_t>(e.input)].tensor.index()].dtype);
    case Expr::Kind::constant:
      return std::isfinite(e.constant) && e.constant == std::nearbyint(e.constant);
    case Expr::Kind::index:
      return true;
    case Expr::Kind::before:
    case Expr::Kind::after:
      return false;
    case Expr::Kind::call:
      break;
  }
  if (e.function == "lt" || e.function == "floor" || e.function == "round") return true;
  constexpr std::array<std::string_view, 10> kLeave = {"add", "sub", "mul",  "max",    "min",
                                                       "neg", "abs", "relu", "square", "select"};
  if (std::ranges::find(kLeave, e.function) == kLeave.end()) return false;
  const std::size_t first = e.function == "select" ? 1 : 0;  // a condition may be anything
  return std::all_of(e.args.begin() + static_cast<std::ptrdiff_t>(first), e.args.end(),
                     [&](const Expr& a) { return is_whole(spec, op, a); });
}

bool is_light(const Expr& e) {
  if (e.kind == Expr::Kind::call) {
    const bool scales = e.function == "div" && e.args[1].kind == Expr::Kind::constant;
    if (!scales && find_expr_function(e.function)->light == 0) return false;
  }
  return std::ranges::all_of(e.args, is_light);
}

bool reads_input(const Expr& e, int input) {
  if (e.kind == Expr::Kind::input) return e.input == input;
  return std::any_of(e.args.begin(), e.args.end(),
                     [input](const Expr& x) { return reads_input(x, input); });
}

}  // namespace tilewright
