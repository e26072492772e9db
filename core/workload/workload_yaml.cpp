#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "core/base/document.h"
#include "core/base/format.h"
#include "core/workload/notation.h"
#include "core/workload/text.h"
#include "core/workload/workload_file.h"

namespace tilewright {
namespace {

class YamlReader {
 public:
  explicit YamlReader(std::string_view file) : file_(file) {}

  RawWorkload read(std::string_view text) const {
    check_length(text, file_);
    try {
      const std::string owned(text);
      const int documents = count_yaml_documents(owned);
      if (documents != 1)
        throw InputError({.where = file_,
                          .value = std::to_string(documents) + " documents",
                          .problem = "were found",
                          .accepted = "one workload a file"});
      return document(YAML::Load(owned));
    } catch (const YAML::Exception& e) {
      throw InputError({.where = place(e.mark),
                        .problem = "is not YAML: " + e.msg,
                        .accepted = "one document of YAML or JSON (docs/formats.md)"});
    }
  }

 private:
  std::string place(const YAML::Mark& mark) const {
    if (mark.is_null()) return file_;
    return file_ + ":" + std::to_string(mark.line + 1);
  }
  std::string place(const YAML::Node& n) const { return place(n.Mark()); }

  static std::string_view kind_of(const YAML::Node& n) {
    if (n.IsMap()) return "a map";
    if (n.IsSequence()) return "a list";
    if (n.IsScalar()) return "a scalar";
    return "empty";
  }
  [[noreturn]] void wrong_kind(const YAML::Node& n, const std::string& field,
                               const std::string& accepted) const {
    throw InputError({.where = place(n),
                      .field = field,
                      .problem = "is " + std::string(kind_of(n)),
                      .accepted = accepted});
  }
  RawText scalar(const YAML::Node& n, const std::string& field, const std::string& accepted) const {
    if (n.IsNull()) wrong_kind(n, field, accepted + "; a name that YAML reads as null in quotes");
    if (!n.IsScalar()) wrong_kind(n, field, accepted);
    return {n.Scalar(), place(n)};
  }

  RawWorkload document(const YAML::Node& root) const {
    if (!root.IsMap()) wrong_kind(root, "workload", "a map with keys " + join(workload_keys()));
    RawWorkload raw{.where = file_, .name = {.where = file_}};
    std::vector<std::string> seen;
    for (const auto& entry : root) {
      const RawText key = scalar(entry.first, "key", join(workload_keys()));
      if (std::find(seen.begin(), seen.end(), key.text) != seen.end())
        throw InputError({.where = key.where,
                          .field = key.text,
                          .problem = "is given twice",
                          .accepted = "each key once"});
      seen.push_back(key.text);
      section(key, entry.second, raw);
    }
    for (const char* required : {"loops", "operators"})
      if (std::find(seen.begin(), seen.end(), required) == seen.end())
        throw InputError({.where = file_,
                          .field = required,
                          .problem = "is missing",
                          .accepted = "a workload with loops and operators"});
    return raw;
  }

  void section(const RawText& key, const YAML::Node& n, RawWorkload& raw) const {
    if (key.text == "name")
      raw.name = scalar(n, "name", "a name");
    else if (key.text == "dtype")
      raw.dtype = scalar(n, "dtype", "f16, bf16, f32, f64, i8, i32");
    else if (key.text == "loops")
      pairs(n, "loops", "an extent", "a map from loops to extents",
            [&](RawText name, RawText extent) {
              raw.loops.push_back({std::move(name), std::move(extent)});
            });
    else if (key.text == "tensors")
      tensors(n, raw);
    else if (key.text == "dtypes")
      pairs(n, "dtypes", "an element type", "a map from tensors to element types",
            [&](RawText name, RawText type) {
              raw.dtypes.emplace_back(std::move(name), std::move(type));
            });
    else if (key.text == "ranges")
      pairs(n, "ranges", "a positive number, or LOW to HIGH",
            "a map from inputs to the largest value drawn", [&](RawText name, RawText range) {
              raw.ranges.emplace_back(std::move(name), std::move(range));
            });
    else if (key.text == "values")
      values(n, raw);
    else if (key.text == "operators")
      operators(n, raw);
    else if (key.text == "outputs")
      raw.outputs = list(n, "outputs", "a list of tensors", "a tensor");
    else
      throw unknown_name(key.where, "key", key.text, workload_keys());
  }

  template <class Add>
  void pairs(const YAML::Node& n, const std::string& field, const std::string& value,
             const std::string& accepted, Add&& add) const {
    if (!n.IsMap()) wrong_kind(n, field, accepted);
    for (const auto& entry : n) {
      RawText name = scalar(entry.first, field, accepted);
      RawText item = scalar(entry.second, field + "." + name.text, value);
      add(std::move(name), std::move(item));
    }
  }

  std::vector<RawText> list(const YAML::Node& n, const std::string& field,
                            const std::string& accepted, const std::string& item) const {
    if (!n.IsSequence()) wrong_kind(n, field, accepted);
    std::vector<RawText> out;
    for (const YAML::Node& i : n) out.push_back(scalar(i, field, item));
    return out;
  }

  void values(const YAML::Node& n, RawWorkload& raw) const {
    const std::string accepted =
        "a map from inputs to lists of numbers, drawn or TYPE at BYTE of FILE";
    if (!n.IsMap()) wrong_kind(n, "values", accepted);
    for (const auto& entry : n) {
      RawWorkload::ValuesEntry e{.name = scalar(entry.first, "values", accepted)};
      const std::string field = "values." + e.name.text;
      if (entry.second.IsScalar())
        e.file = scalar(entry.second, field, accepted);
      else
        e.list = list(entry.second, field, accepted, "a number");
      raw.values.push_back(std::move(e));
    }
  }

  void tensors(const YAML::Node& n, RawWorkload& raw) const {
    const std::string accepted = "a map from tensors to lists of dimensions";
    if (!n.IsMap()) wrong_kind(n, "tensors", accepted);
    for (const auto& entry : n) {
      RawText name = scalar(entry.first, "tensors", accepted);
      std::vector<RawText> shape =
          list(entry.second, "tensors." + name.text, "a list of dimensions",
               "loops, integers or affine forms of loops");
      raw.tensors.push_back({std::move(name), std::move(shape)});
    }
  }

  void operators(const YAML::Node& n, RawWorkload& raw) const {
    if (!n.IsSequence()) wrong_kind(n, "operators", "a list of operators in index notation");
    for (const YAML::Node& item : n) {
      const std::string field = "operators[" + std::to_string(raw.operators.size()) + "]";
      if (item.IsScalar()) {
        raw.operators.push_back({.text = {item.Scalar(), place(item)}});
        continue;
      }
      const std::string accepted = "index notation, or {name: index notation}";
      if (!item.IsMap() || item.size() != 1) wrong_kind(item, field, accepted);
      const auto entry = *item.begin();
      RawText name = scalar(entry.first, field, accepted);
      raw.operators.push_back({std::move(name), scalar(entry.second, field, accepted)});
    }
  }

  std::string file_;
};

/// Identifiers that YAML readers take for something else than text.
std::string quoted(const std::string& name) {
  static const std::vector<std::string> special = {"null", "yes",  "no",   "on",
                                                   "off",  "true", "false"};
  std::string lower = name;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const bool quote = std::find(special.begin(), special.end(), lower) != special.end();
  return quote ? "\"" + name + "\"" : name;
}

/// The loop that the tensor's first plain access has in this dimension, if the extent is the same.
std::string dimension_text(const Workload& w, TensorId t, std::size_t d) {
  const std::int64_t extent = w.tensor(t).shape[d];
  const auto named = [&](const Access& a) -> std::optional<std::string> {
    if (a.tensor != t) return std::nullopt;
    const auto loop = a.index[d].plain_loop();
    if (!loop || w.loop(*loop).extent != extent) return std::nullopt;
    return quoted(w.loop(*loop).name);
  };
  for (const Operator& op : w.operators()) {
    for (const Output& out : op.outputs)
      if (const auto name = named(out.target)) return *name;
    for (const Access& in : op.inputs)
      if (const auto name = named(in)) return *name;
  }
  return std::to_string(extent);
}

std::string flow_list(const std::vector<std::string>& items) { return "[" + join(items) + "]"; }

std::string values_text(const Values& values) {
  if (values.list.empty()) return yaml_scalar(to_text(values));
  std::vector<std::string> numbers;
  for (const double n : values.list) numbers.push_back(formatted("{}", n));
  return flow_list(numbers);
}

}  // namespace

Workload workload_from_yaml(std::string_view text, std::string_view where) {
  return create(YamlReader(where).read(text));
}

std::string range_text(const Tensor& t) {
  return t.least ? formatted("{} to {}", *t.least, t.range) : formatted("{}", t.range);
}

std::string to_yaml(const Workload& w) {
  std::string out;
  if (!w.name().empty()) out += "name: \"" + w.name() + "\"\n";
  out += "dtype: " + std::string(name_of(w.dtype())) + "\n";
  std::vector<std::string> items;
  for (const Loop& l : w.loops()) items.push_back(quoted(l.name) + ": " + std::to_string(l.extent));
  out += "loops: {" + join(items) + "}\n";
  out += "tensors:\n";
  std::vector<std::string> types, ranges, values;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    items.clear();
    for (std::size_t d = 0; d < tensor.shape.size(); ++d)
      items.push_back(dimension_text(w, TensorId(t), d));
    out += "  " + quoted(tensor.name) + ": " + flow_list(items) + "\n";
    if (tensor.dtype != w.dtype())
      types.push_back(quoted(tensor.name) + ": " + std::string(name_of(tensor.dtype)));
    if (tensor.range != 1 || tensor.least)
      ranges.push_back(quoted(tensor.name) + ": " + range_text(tensor));
  }
  for (const Tensor& t : w.tensors())
    if (t.values) values.push_back("  " + quoted(t.name) + ": " + values_text(*t.values) + "\n");
  if (!types.empty()) out += "dtypes: {" + join(types) + "}\n";
  if (!ranges.empty()) out += "ranges: {" + join(ranges) + "}\n";
  if (!values.empty()) out += "values:\n" + join(values, "");
  out += "operators:\n";
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    // "name: text" is a map of one entry; the name needs quotes where the text does not.
    const std::string& name = w.operators()[i].name;
    out += "  - " + quoted(name) + to_text(w, OpId(i)).substr(name.size()) + "\n";
  }
  items.clear();
  for (TensorId t : w.outputs()) items.push_back(quoted(w.tensor(t).name));
  out += "outputs: " + flow_list(items) + "\n";
  return out;
}

}  // namespace tilewright
