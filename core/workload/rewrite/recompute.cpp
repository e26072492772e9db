// Operators computed more than once, and operators computed where they are read. What compilers do
// when they fuse an operator into each of its readers' kernels, said for the operators and readers
// that they choose (compose.cpp chooses them itself).
//
//   d[r,c] = x[r,c] - m[r]                       d[r,c]   = x[r,c] - m[r]
//   v[r]  += square(d[r,c])          copies      d_2[r,c] = x[r,c] - m[r]
//   y[r,c] = d[r,c] * s[r]           d=y   =>    v[r]    += square(d[r,c])
//                                                y[r,c]   = d_2[r,c] * s[r]
#include <algorithm>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"

namespace tilewright {
namespace {

constexpr const char* kCopies = "OP=READER+READER/READER;OP=READER";
constexpr const char* kInline = "OP;OP";

[[noreturn]] void bad(std::string_view value, std::string problem, std::string accepted) {
  throw InputError({.field = "rewrite",
                    .value = "'" + std::string(value) + "'",
                    .problem = std::move(problem),
                    .accepted = std::move(accepted)});
}

/// The place of an operator. Throws InputError.
std::size_t place_of(const WorkloadSpec& spec, std::string_view name) {
  const auto at = std::ranges::find(spec.operators, name, &Operator::name);
  if (at == spec.operators.end())
    bad(name, "is not an operator of " + spec.name, "an operator's name");
  return static_cast<std::size_t>(at - spec.operators.begin());
}

bool reads(const Operator& op, TensorId t) {
  return std::ranges::any_of(op.inputs, [t](const Access& a) { return a.tensor == t; });
}

/// One more of the operator at `at`, read by `readers` alone.
void add_copy(WorkloadSpec& spec, std::size_t at, std::span<const std::string_view> readers) {
  Operator copy = spec.operators[at];
  std::vector<std::size_t> takers;
  for (std::string_view reader : readers) {
    takers.push_back(place_of(spec, reader));
    const Operator& taker = spec.operators[takers.back()];
    if (std::ranges::none_of(copy.outputs,
                             [&](const Output& o) { return reads(taker, o.target.tensor); }))
      bad(reader, "reads nothing that " + copy.name + " writes", "one of its readers");
  }
  copy.name = rewrite::unused(spec.operators, copy.name);
  for (Output& o : copy.outputs) {
    const TensorId from = o.target.tensor;
    Tensor tensor = spec.tensors[from.index()];
    tensor.name = rewrite::unused(spec.tensors, tensor.name);
    o.target.tensor = TensorId(spec.tensors.size());
    spec.tensors.push_back(std::move(tensor));
    for (std::size_t t : takers)
      for (Access& a : spec.operators[t].inputs)
        if (a.tensor == from) a.tensor = o.target.tensor;
  }
  spec.operators.insert(spec.operators.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                        std::move(copy));
}

Result<Workload> with_copies(const Workload& w, std::string_view text) {
  WorkloadSpec spec = w.spec();
  for (std::string_view item : rewrite::split(text, ';')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) bad(item, "names no readers", kCopies);
    const std::string_view name = item.substr(0, equals);
    if (spec.operators[place_of(spec, name)].running)
      return Reason{formatted("operator {} is running", name)};
    for (std::string_view group : rewrite::split(item.substr(equals + 1), '/'))
      add_copy(spec, place_of(spec, name), rewrite::split(group, '+'));
  }
  // Of several results each copy keeps what its readers take.
  rewrite::drop_unneeded(spec);
  return Workload::create(std::move(spec));
}

/// Why the operator's expression cannot take the place of what it writes; none where it can.
std::optional<Reason> not_inlined(const WorkloadSpec& spec, const Operator& op) {
  const auto because = [&op](const char* why) {
    return Reason{formatted("operator {} {}", op.name, why)};
  };
  if (op.running) return because("is running");
  if (op.outputs.size() != 1) return because("writes several tensors");
  const Output& o = op.outputs.front();
  if (o.combine != Combine::assign) return because("is a reduction");
  if (std::ranges::find(spec.outputs, o.target.tensor) != spec.outputs.end())
    return because("writes an output");
  return std::nullopt;
}

Result<Workload> with_inlined(const Workload& w, std::string_view text) {
  WorkloadSpec spec = w.spec();
  std::vector<bool> gone(spec.operators.size());
  for (std::string_view name : rewrite::split(text, ';')) {
    const std::size_t at = place_of(spec, name);
    const Operator producer = spec.operators[at];
    if (const auto reason = not_inlined(spec, producer)) return *reason;
    const Output& written = producer.outputs.front();
    for (std::size_t r = 0; r < spec.operators.size(); ++r) {
      Operator& reader = spec.operators[r];
      for (std::size_t i = 0; !gone[r] && i < reader.inputs.size();) {
        if (reader.inputs[i].tensor != written.target.tensor) {
          ++i;
          continue;
        }
        Result<Operator> taken =
            reader.running
                ? Result<Operator>(Reason{formatted("{} is running", reader.name)})
                : rewrite::substitute(spec, reader, static_cast<int>(i), producer, written);
        if (!taken) return Reason{formatted("operator {}: {}", name, taken.reason())};
        reader = std::move(taken).value();
        i = 0;
      }
    }
    gone[at] = true;
  }
  rewrite::drop(spec, gone);
  return Workload::create(std::move(spec));
}

}  // namespace

Rewrite copies() {
  return {
      .name = "copies",
      .summary =
          "the readers named read a copy of OP of their own, those behind a slash a further one; "
          "OP keeps its other readers",
      .source =
          "producers duplicated into each reader: XLA's instruction fusion "
          "(xla/service/instruction_fusion.cc)",
      .argument = kCopies,
      .with = with_copies};
}

Rewrite inlining() {
  return {.name = "inline",
          .summary =
              "an element-wise operator's value is computed by each of its readers, at the "
              "index that it is read at",
          .source = "Ragan-Kelley et al., Halide, PLDI 2013 (compute_inline)",
          .argument = kInline,
          .with = with_inlined};
}

}  // namespace tilewright
