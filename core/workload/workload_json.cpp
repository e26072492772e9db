#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/workload/notation.h"
#include "core/workload/text.h"
#include "core/workload/workload_file.h"

namespace tilewright {
namespace {

using nlohmann::json;

class JsonReader {
 public:
  explicit JsonReader(std::string_view where) : where_(where) {}

  RawWorkload read(const json& j) const {
    if (!j.is_object()) wrong_kind(j, "workload", "an object with keys " + join(workload_keys()));
    RawWorkload raw{.where = where_, .name = {.where = where_}};
    for (const auto& [key, value] : j.items()) section(key, value, raw);
    for (const char* required : {"loops", "operators"})
      if (!j.contains(required))
        throw InputError({.where = where_,
                          .field = required,
                          .problem = "is missing",
                          .accepted = "a workload with loops and operators"});
    return raw;
  }

 private:
  [[noreturn]] void wrong_kind(const json& j, const std::string& field,
                               const std::string& accepted) const {
    throw InputError({.where = where_,
                      .field = field,
                      .problem = "is " + std::string(j.type_name()),
                      .accepted = accepted});
  }
  RawText text(const json& j, const std::string& field, const std::string& accepted) const {
    if (!j.is_string()) wrong_kind(j, field, accepted);
    return {j.get<std::string>(), where_};
  }
  /// Numbers stay text until they are checked.
  RawText number(const json& j, const std::string& field,
                 const std::string& accepted = "a positive integer") const {
    if (j.is_number()) return {j.dump(), where_};
    return text(j, field, accepted);
  }

  void section(const std::string& key, const json& j, RawWorkload& raw) const {
    if (key == "name")
      raw.name = text(j, key, "a string");
    else if (key == "dtype")
      raw.dtype = text(j, key, "a string");
    else if (key == "loops")
      loops(j, raw);
    else if (key == "tensors")
      tensors(j, raw);
    else if (key == "dtypes")
      entries(j, key, "an object from tensors to element types", raw.dtypes);
    else if (key == "ranges")
      entries(j, key, "an object from inputs to the largest value drawn", raw.ranges);
    else if (key == "values")
      for (const auto& [name, v] : object(j, key, kValues).items()) values(name, v, raw);
    else if (key == "operators")
      operators(j, raw);
    else if (key == "outputs")
      for (const json& o : array(j, key, "an array of tensors"))
        raw.outputs.push_back(text(o, key, "a string"));
    else
      throw unknown_name(where_, "key", key, workload_keys());
  }

  static constexpr const char* kValues = "a list of numbers, drawn or TYPE at BYTE of FILE";

  void values(const std::string& name, const json& j, RawWorkload& raw) const {
    const std::string field = "values." + name;
    RawWorkload::ValuesEntry e{.name = {name, where_}};
    if (j.is_string())
      e.file = text(j, field, kValues);
    else
      for (const json& n : array(j, field, kValues)) e.list.push_back(number(n, field, "a number"));
    raw.values.push_back(std::move(e));
  }

  const json& object(const json& j, const std::string& field, const std::string& accepted) const {
    if (!j.is_object()) wrong_kind(j, field, accepted);
    return j;
  }

  const json& array(const json& j, const std::string& field, const std::string& accepted) const {
    if (!j.is_array()) wrong_kind(j, field, accepted);
    return j;
  }

  /// A record of an array: an object of the required keys and perhaps the optional ones.
  const json& record(const json& j, const std::string& field, std::vector<std::string> required,
                     const std::vector<std::string>& optional = {}) const {
    std::vector<std::string> known = required;
    known.insert(known.end(), optional.begin(), optional.end());
    if (!j.is_object()) wrong_kind(j, field, "an object with keys " + join(known));
    for (const auto& [key, value] : j.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw unknown_name(where_, field, key, known);
    for (const std::string& key : required)
      if (!j.contains(key))
        throw InputError({.where = where_,
                          .field = field + "." + key,
                          .problem = "is missing",
                          .accepted = "an object with keys " + join(known)});
    return j;
  }

  void loops(const json& j, RawWorkload& raw) const {
    if (j.is_object()) {
      for (const auto& [name, extent] : j.items())
        raw.loops.push_back({{name, where_}, number(extent, "loops." + name)});
      return;
    }
    for (const json& l : array(j, "loops", "an array of {name, extent}, or an object")) {
      record(l, "loops", {"name", "extent"});
      RawText name = text(l["name"], "loops.name", "a string");
      RawText extent = number(l["extent"], "loops." + name.text);
      raw.loops.push_back({std::move(name), std::move(extent)});
    }
  }

  std::vector<RawText> shape(const json& j, const std::string& field) const {
    std::vector<RawText> out;
    for (const json& d : array(j, field, "an array of dimensions")) out.push_back(number(d, field));
    return out;
  }

  void tensors(const json& j, RawWorkload& raw) const {
    if (j.is_object()) {
      for (const auto& [name, dims] : j.items())
        raw.tensors.push_back({{name, where_}, shape(dims, "tensors." + name)});
      return;
    }
    for (const json& t :
         array(j, "tensors", "an array of {name, shape, dtype, range}, or an object")) {
      record(t, "tensors", {"name", "shape"}, {"dtype", "range", "values"});
      RawText name = text(t["name"], "tensors.name", "a string");
      if (t.contains("dtype"))
        raw.dtypes.emplace_back(name,
                                text(t["dtype"], "tensors." + name.text + ".dtype", "a string"));
      if (t.contains("range"))
        raw.ranges.emplace_back(name, number(t["range"], "tensors." + name.text + ".range",
                                             "a positive number, or LOW to HIGH"));
      if (t.contains("values")) values(name.text, t["values"], raw);
      std::vector<RawText> dims = shape(t["shape"], "tensors." + name.text);
      raw.tensors.push_back({std::move(name), std::move(dims)});
    }
  }

  void entries(const json& j, const std::string& key, const std::string& accepted,
               std::vector<std::pair<RawText, RawText>>& into) const {
    if (!j.is_object()) wrong_kind(j, key, accepted);
    for (const auto& [name, value] : j.items())
      into.emplace_back(RawText{name, where_}, number(value, key + "." + name, accepted));
  }

  void operators(const json& j, RawWorkload& raw) const {
    const std::string accepted = "a string, or an object {name: string}";
    for (const json& op : array(j, "operators", "an array of operators in index notation")) {
      const std::string field = "operators[" + std::to_string(raw.operators.size()) + "]";
      if (!op.is_object() || op.size() != 1) {
        raw.operators.push_back({.text = text(op, field, accepted)});
        continue;
      }
      raw.operators.push_back(
          {{op.begin().key(), where_}, text(op.begin().value(), field, accepted)});
    }
  }

  std::string where_;
};

/// What JSON has no number for is text.
nlohmann::ordered_json values_json(const Values& values) {
  if (values.list.empty()) return to_text(values);
  auto list = nlohmann::ordered_json::array();
  for (const double v : values.list)
    if (std::isfinite(v))
      list.push_back(v);
    else
      list.push_back(std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
  return list;
}

}  // namespace

Workload workload_from_json(const nlohmann::json& j, std::string_view where) {
  return create(JsonReader(where).read(j));
}

nlohmann::ordered_json to_json(const Workload& w) {
  nlohmann::ordered_json j;
  if (!w.name().empty()) j["name"] = w.name();
  j["dtype"] = name_of(w.dtype());
  // Arrays, because the order of loops and tensors is part of the value.
  j["loops"] = nlohmann::ordered_json::array();
  for (const Loop& l : w.loops()) j["loops"].push_back({{"name", l.name}, {"extent", l.extent}});
  j["tensors"] = nlohmann::ordered_json::array();
  for (const Tensor& t : w.tensors()) {
    j["tensors"].push_back({{"name", t.name}, {"shape", t.shape}, {"dtype", name_of(t.dtype)}});
    if (t.least)
      j["tensors"].back()["range"] = range_text(t);
    else if (t.range != 1)
      j["tensors"].back()["range"] = t.range;
    if (t.values) j["tensors"].back()["values"] = values_json(*t.values);
  }
  j["operators"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    j["operators"].push_back(to_text(w, OpId(i)));
  j["outputs"] = nlohmann::ordered_json::array();
  for (TensorId t : w.outputs()) j["outputs"].push_back(w.tensor(t).name);
  return j;
}

}  // namespace tilewright
