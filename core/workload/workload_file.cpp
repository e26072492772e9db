#include "core/workload/workload_file.h"

#include <charconv>
#include <cmath>

#include "core/workload/notation.h"

namespace tilewright {
namespace {

std::int64_t positive(const RawText& raw, const std::string& field) {
  std::int64_t n = 0;
  const char* end = raw.text.data() + raw.text.size();
  const auto [rest, error] = std::from_chars(raw.text.data(), end, n);
  if (error != std::errc() || rest != end || n < 1)
    throw InputError({.where = raw.where,
                      .field = field,
                      .value = raw.text.empty() ? "''" : raw.text,
                      .problem = error == std::errc::result_out_of_range
                                     ? "is past 64 bits"
                                     : "is not a positive integer",
                      .accepted = "1..9223372036854775807"});
  return n;
}

DType dtype_of(const RawText& raw, const std::string& field) {
  const auto type = dtype_from_name(raw.text);
  if (!type)
    throw unknown_name(raw.where, field, raw.text, {"f16", "bf16", "f32", "f64", "i8", "i32"});
  return *type;
}

/// "0.5": from -0.5 to 0.5; "0 to 1": as it says.
void set_range(Tensor& t, const RawText& raw, const std::string& field) {
  const auto number = [](std::string_view text) -> std::optional<double> {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value))
      return std::nullopt;
    return value;
  };
  const std::string_view text = raw.text;
  const auto to = text.find(" to ");
  const auto most = number(to == text.npos ? text : text.substr(to + 4));
  const auto least = to == text.npos ? std::nullopt : number(text.substr(0, to));
  if (!most || (to == text.npos ? *most <= 0 : !least || *least >= *most))
    throw InputError({.where = raw.where,
                      .field = field,
                      .value = raw.text.empty() ? "''" : raw.text,
                      .problem = "is not a range of values",
                      .accepted = "a positive number, or LOW to HIGH"});
  t.range = *most, t.least = least;
}

/// An entry of a tensor's shape: a loop, an integer or an affine form of loops, whose largest value
/// plus one is the extent. The form is read by the notation's own parser, as an index.
std::int64_t dimension(const WorkloadSpec& spec, const RawText& raw, const std::string& field) {
  for (const Loop& l : spec.loops)
    if (l.name == raw.text) return l.extent;
  if (!raw.text.empty() && raw.text.find_first_not_of("+-0123456789") == std::string::npos)
    return positive(raw, field);
  WorkloadSpec scratch{.loops = spec.loops};
  NotationContext context{scratch, {}};
  try {
    // Only an index may stand here: nothing that would close the brackets.
    if (raw.text.find_first_of("[],;:=()") != std::string::npos)
      throw InputError(InputError::Parts{});
    parse_operator(context, "shape_[0] += dim_[" + raw.text + "]", raw.where);
    infer_shapes(context);
    if (scratch.tensors[1].shape.size() != 1) throw InputError(InputError::Parts{});  // blank
  } catch (const InputError&) {
    std::vector<std::string> names;
    for (const Loop& l : spec.loops) names.push_back(l.name);
    const std::string near = nearest(raw.text, names);
    throw InputError(
        {.where = raw.where,
         .field = field,
         .value = "'" + raw.text + "'",
         .problem = "is not a dimension" + (near.empty() ? "" : ", did you mean '" + near + "'?"),
         .accepted = "a positive integer, or an affine form of the loops " + join(names)});
  }
  const auto elements = end_of(scratch, scratch.operators.front().inputs.front().index.front());
  if (elements.value_or(0) < 1)
    throw InputError({.where = raw.where,
                      .field = field,
                      .value = raw.text,
                      .problem = "is " + std::to_string(elements.value_or(0)) + " elements",
                      .accepted = "a form that reaches 0 or more"});
  return *elements;
}

template <class Entries>
void refuse_duplicates(const Entries& entries, const std::string& kind) {
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (entries[i].name.text == entries[j].name.text)
        throw InputError({.where = entries[i].name.where,
                          .field = kind + "." + entries[i].name.text,
                          .problem = "is given twice",
                          .accepted = "each name once"});
}

constexpr std::size_t kMostEntries = 65536;

template <class Entries>
void refuse_too_many(const RawWorkload& raw, const Entries& entries, const std::string& kind) {
  if (entries.size() > kMostEntries)
    throw InputError({.where = raw.where,
                      .field = kind,
                      .value = std::to_string(entries.size()),
                      .problem = "entries are too many",
                      .accepted = "at most " + std::to_string(kMostEntries)});
}

std::vector<std::string> tensor_names(const WorkloadSpec& spec) {
  std::vector<std::string> names;
  for (const Tensor& t : spec.tensors) names.push_back(t.name);
  return names;
}

TensorId find_tensor(const WorkloadSpec& spec, const RawText& raw, const std::string& field) {
  for (std::size_t i = 0; i < spec.tensors.size(); ++i)
    if (spec.tensors[i].name == raw.text) return TensorId(i);
  throw unknown_name(raw.where, field, raw.text, tensor_names(spec));
}

void bind_tensors(const RawWorkload& raw, WorkloadSpec& spec) {
  for (const RawWorkload::TensorEntry& entry : raw.tensors) {
    Tensor t{.name = entry.name.text, .dtype = spec.dtype};
    if (entry.shape.size() > static_cast<std::size_t>(kMaxRank))
      throw InputError({.where = entry.name.where,
                        .field = "tensors." + t.name,
                        .value = std::to_string(entry.shape.size()),
                        .problem = "dimensions are too many",
                        .accepted = "at most " + std::to_string(kMaxRank)});
    for (const RawText& d : entry.shape) t.shape.push_back(dimension(spec, d, "tensors." + t.name));
    spec.tensors.push_back(std::move(t));
  }
}

/// Where the thing that an error's field names stands: "loops.m", "tensors.A: ...", "outputs".
std::string place_of(const RawWorkload& raw, const WorkloadSpec& spec, const std::string& field) {
  const auto names = [&](const std::string& kind, const std::string& name) {
    return field == kind + "." + name;
  };
  for (const auto& l : raw.loops)
    if (names("loops", l.name.text)) return l.name.where;
  for (const auto& t : raw.tensors)
    if (names("tensors", t.name.text)) return t.name.where;
  for (std::size_t i = 0; i < raw.operators.size() && i < spec.operators.size(); ++i)
    if (names("operators", spec.operators[i].name)) return raw.operators[i].text.where;
  if (field == "outputs" && !raw.outputs.empty()) return raw.outputs.front().where;
  if (field == "name") return raw.name.where;
  return raw.where;
}

}  // namespace

const std::vector<std::string>& workload_keys() {
  static const std::vector<std::string> keys = {
      "name", "dtype", "loops", "tensors", "dtypes", "ranges", "values", "operators", "outputs"};
  return keys;
}

namespace {

/// Every entry of a map from tensors, each named once.
template <class Set>
void for_each_tensor_of(const std::vector<std::pair<RawText, RawText>>& entries,
                        const std::string& key, WorkloadSpec& spec, Set set) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, value] = entries[i];
    const std::string field = key + "." + name.text;
    for (std::size_t j = 0; j < i; ++j)
      if (entries[j].first.text == name.text)
        throw InputError({.where = name.where,
                          .field = field,
                          .problem = "is given twice",
                          .accepted = "each tensor once"});
    set(spec.tensors[find_tensor(spec, name, key).index()], value, field);
  }
}

double number_of(const RawText& raw, const std::string& field) {
  double n = 0;
  const char* end = raw.text.data() + raw.text.size();
  const auto [stop, error] = std::from_chars(raw.text.data(), end, n);
  if (error != std::errc() || stop != end)
    throw InputError({.where = raw.where,
                      .field = field,
                      .value = raw.text.empty() ? "''" : raw.text,
                      .problem = "is not a number",
                      .accepted = "a list of numbers"});
  return n;
}

void bind_values(const RawWorkload& raw, WorkloadSpec& spec) {
  for (const RawWorkload::ValuesEntry& entry : raw.values) {
    const std::string field = "values." + entry.name.text;
    Tensor& t = spec.tensors[find_tensor(spec, entry.name, "values").index()];
    if (t.values)
      throw InputError({.where = entry.name.where,
                        .field = field,
                        .problem = "is given twice",
                        .accepted = "each tensor once"});
    Values v;
    if (entry.file)
      v = parse_values(entry.file->text, entry.file->where, field);
    else if (entry.list.empty())
      throw InputError({.where = entry.name.where,
                        .field = field,
                        .value = "an empty list",
                        .problem = "says no values",
                        .accepted = std::to_string(t.elements().value) + " values"});
    for (const RawText& n : entry.list) v.list.push_back(number_of(n, field));
    t.values = SharedValues(std::move(v));
  }
}

/// Fills in as much of `spec` as it gets to, so that an error can be placed.
void bind_into(const RawWorkload& raw, WorkloadSpec& spec) {
  spec.name = raw.name.text;
  if (raw.dtype) spec.dtype = dtype_of(*raw.dtype, "dtype");
  refuse_too_many(raw, raw.loops, "loops");
  refuse_too_many(raw, raw.tensors, "tensors");
  refuse_too_many(raw, raw.operators, "operators");
  refuse_too_many(raw, raw.outputs, "outputs");
  refuse_duplicates(raw.loops, "loops");
  refuse_duplicates(raw.tensors, "tensors");
  for (const RawWorkload::LoopEntry& l : raw.loops)
    spec.loops.push_back({l.name.text, positive(l.extent, "loops." + l.name.text)});
  bind_tensors(raw, spec);
  NotationContext context{spec, {}};
  for (const RawWorkload::OperatorEntry& op : raw.operators)
    parse_operator(context, op.text.text, op.text.where, op.name.text);
  infer_shapes(context);
  for_each_tensor_of(raw.dtypes, "dtypes", spec, [](Tensor& t, const RawText& type, auto& field) {
    t.dtype = dtype_of(type, field);
  });
  for_each_tensor_of(raw.ranges, "ranges", spec, [](Tensor& t, const RawText& range, auto& field) {
    set_range(t, range, field);
  });
  bind_values(raw, spec);
  for (const RawText& o : raw.outputs) spec.outputs.push_back(find_tensor(spec, o, "outputs"));
}

/// Outputs are written whole. Of other tensors the rest is read by nobody, which `create` checks.
void check_outputs(const Workload& w) {
  for (const Operator& op : w.operators())
    for (const Output& o : op.outputs)
      for (std::size_t d = 0; d < o.target.index.size(); ++d) {
        const Tensor& t = w.tensor(o.target.tensor);
        const auto loop = o.target.index[d].plain_loop();
        const std::int64_t written = loop ? w.loop(*loop).extent : 1;
        if (!w.is_output(o.target.tensor) || written == t.shape[d]) continue;
        throw InputError({.field = "operators." + op.name,
                          .value = t.name,
                          .problem = "is written over [0," + std::to_string(written) +
                                     ") in dimension " + std::to_string(d) + " of extent " +
                                     std::to_string(t.shape[d]),
                          .accepted = "a writer that covers its tensor"});
      }
}

}  // namespace

Workload create(const RawWorkload& raw) {
  WorkloadSpec spec;
  try {
    bind_into(raw, spec);
    Workload w = Workload::create(spec);
    check_outputs(w);
    return w;
  } catch (const InputError& e) {
    if (!e.parts().where.empty()) throw;
    throw e.located(place_of(raw, spec, e.parts().field));
  }
}

}  // namespace tilewright
