// Names to workloads: the registry of families and rows, and the parser of their parameters.
#include <algorithm>
#include <charconv>

#include "core/base/document.h"
#include "core/base/names.h"
#include "core/workload/catalogue/builtin_table.h"
#include "core/workload/catalogue/row_types.h"
#include "core/workload/import/onnx_import.h"
#include "core/workload/notation.h"
#include "core/workload/text.h"

namespace tilewright {
namespace builtin {

Draft::Draft(DType dtype) { raw_.dtype = RawText{std::string(name_of(dtype))}; }

Draft& Draft::loop(std::string name, std::int64_t extent) {
  raw_.loops.push_back({{std::move(name)}, {std::to_string(extent)}});
  return *this;
}

Draft& Draft::tensor(std::string name, std::string_view dimensions) {
  RawWorkload::TensorEntry entry{.name = {std::move(name)}};
  while (!dimensions.empty()) {
    const std::size_t comma = std::min(dimensions.find(','), dimensions.size());
    entry.shape.push_back({std::string(dimensions.substr(0, comma))});
    dimensions.remove_prefix(std::min(comma + 1, dimensions.size()));
  }
  raw_.tensors.push_back(std::move(entry));
  return *this;
}

Draft& Draft::op(std::string notation) {
  raw_.operators.push_back({.text = {std::move(notation)}});
  return *this;
}

Draft& Draft::type(std::string tensor, DType dtype) {
  raw_.dtypes.push_back({{std::move(tensor)}, {std::string(name_of(dtype))}});
  return *this;
}

Draft& Draft::range(std::string input, double largest) {
  raw_.ranges.push_back({{std::move(input)}, {number_text(largest)}});
  return *this;
}

Draft& Draft::output(std::string tensor) {
  raw_.outputs.push_back({std::move(tensor)});
  return *this;
}

}  // namespace builtin

namespace {

using builtin::Family;
using builtin::Parameter;
using builtin::Row;
using builtin::Values;

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> out = builtin::gemm_families();
    for (auto&& more :
         {builtin::row_families(), builtin::conv_families(), builtin::graph_families(),
          builtin::network_families(), builtin::vision_families(), builtin::transformer_families(),
          builtin::random_families()})
      out.insert(out.end(), more.begin(), more.end());
    return out;
  }();
  return all;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> out = builtin::paper_rows();
    for (Row& r : builtin::network_rows()) out.push_back(std::move(r));
    return out;
  }();
  return all;
}

template <class Items>
auto find(const Items& items, std::string_view name) {
  return std::find_if(items.begin(), items.end(), [&](const auto& i) { return i.name == name; });
}

/// A name with everything that it stands for.
struct Named {
  const Family* family = nullptr;
  Values values;
};

std::optional<Named> named(std::string_view name) {
  Named out;
  const auto row = find(rows(), name);
  const auto family = find(families(), row == rows().end() ? name : std::string_view(row->family));
  if (family == families().end()) return std::nullopt;
  out.family = &*family;
  for (const Parameter& p : family->parameters) out.values.numbers[p.name] = p.value;
  if (row != rows().end()) {
    for (const auto& [key, value] : row->numbers) out.values.numbers[key] = value;
    out.values.dtype = row->dtype;
  }
  return out;
}

std::string defaults_text(const Named& n) {
  std::string out;
  for (const Parameter& p : n.family->parameters)
    out += p.name + "=" + std::to_string(n.values[p.name]) + ",";
  return out + "dtype=" + std::string(name_of(n.values.dtype));
}

void set_parameter(Named& n, std::string_view name, std::string_view key, std::string_view value) {
  const std::string field = std::string(name) + ": " + std::string(key);
  if (key == "dtype") {
    const auto type = dtype_from_name(value);
    if (!type) throw unknown_name("", field, value, {"f16", "bf16", "f32", "f64", "i8", "i32"});
    n.values.dtype = *type;
    return;
  }
  const auto p = find(n.family->parameters, key);
  if (p == n.family->parameters.end()) {
    std::vector<std::string> known;
    for (const Parameter& known_one : n.family->parameters) known.push_back(known_one.name);
    known.push_back("dtype");
    throw unknown_name("", std::string(name) + ": parameter", key, std::move(known));
  }
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || rest != end || number < p->least || number > p->most)
    throw InputError({.field = field,
                      .value = value.empty() ? "''" : std::string(value),
                      .problem = "is not accepted",
                      .accepted = std::to_string(p->least) + ".." + std::to_string(p->most)});
  n.values.numbers[p->name] = number;
}

void set_parameters(Named& n, std::string_view name, std::string_view text) {
  std::vector<std::string_view> seen;
  for (;;) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == item.npos)
      throw InputError({.field = std::string(name),
                        .value = "'" + std::string(item) + "'",
                        .problem = "is not a parameter",
                        .accepted = defaults_text(n)});
    const std::string_view key = item.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      throw InputError({.field = std::string(name) + ": " + std::string(key),
                        .problem = "is given twice",
                        .accepted = "each parameter once"});
    seen.push_back(key);
    set_parameter(n, name, key, item.substr(equals + 1));
    if (comma == text.size()) return;
    text.remove_prefix(comma + 1);
  }
}

/// Inputs that are not given in each run keep their values.
Workload with_weights(const Workload& w, const std::vector<std::string>& given) {
  if (given.empty()) return w;
  WorkloadSpec spec = w.spec();
  for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
    const std::string_view name = spec.tensors[t].name;
    const bool is_given = std::ranges::any_of(given, [&](std::string_view g) {
      return g.ends_with('*') ? name.starts_with(g.substr(0, g.size() - 1)) : name == g;
    });
    if (w.is_input(TensorId(t)) && !is_given)
      spec.tensors[t].values = SharedValues(tilewright::Values{});
  }
  return Workload::create(std::move(spec));
}

[[noreturn]] void unknown_workload(std::string_view name) {
  std::vector<std::string> all;
  for (const Family& f : families()) all.push_back(f.name);
  for (const Row& r : rows()) all.push_back(r.name);
  const std::string near = nearest(name, all);
  const std::string hint = near.empty() ? "" : ", did you mean '" + near + "'?";
  throw InputError(
      {.field = "workload",
       .value = "'" + std::string(name) + "'",
       .problem = "is unknown" + hint,
       .accepted = names_like(name, all, "tilewright workloads") + ", a .yaml or .onnx file"});
}

}  // namespace

const std::vector<BuiltinWorkload>& builtin_workloads() {
  static const std::vector<BuiltinWorkload> all = [] {
    std::vector<BuiltinWorkload> out;
    for (const Family& f : families())
      out.push_back({f.name, f.summary, f.source, defaults_text(*named(f.name))});
    for (const Row& r : rows())
      out.push_back({r.name, r.summary, r.source, defaults_text(*named(r.name))});
    return out;
  }();
  return all;
}

bool half_on_accelerators(std::string_view name) {
  const auto row = find(rows(), name.substr(0, name.find(':')));
  return row != rows().end() && row->half_on_accelerators;
}

Workload named_workload(std::string_view name) {
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    const std::string path(name);
    return workload_from_yaml(read_text(path, "a workload file that exists"), path);
  }
  if (names_onnx(name)) return import_named_onnx(name).workload;
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string_view base = name.substr(0, colon);
  std::optional<Named> n = named(base);
  if (!n) unknown_workload(base);
  if (colon < name.size()) set_parameters(*n, base, name.substr(colon + 1));
  try {
    RawWorkload raw = n->family->make(n->values);
    raw.name.text = base;
    return with_weights(create(raw), n->family->given);
  } catch (const InputError& e) {
    throw e.located(base);  // values that are each accepted but not together
  }
}

}  // namespace tilewright
