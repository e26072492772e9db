#include "harness/validate_command.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "harness/registry.h"

namespace tilewright::harness {

std::string command_of(const Request& r, const ValidateOptions& o) {
  std::string text = "tilewright validate";
  const auto add = [&text](const std::string& word) {
    const bool plain = std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-_=:,./@+", c) != nullptr;
    });
    text += " " + (plain && !word.empty() ? word : "'" + word + "'");
  };
  const auto option = [&add](const char* name, const std::optional<std::string>& value) {
    if (!value) return;
    add(name);
    add(*value);
  };
  add(r.subject);
  option("-m", r.machine);
  if (r.model && *r.model != standard_model().name) option("--model", r.model);
  if (!o.orders.empty()) {
    const bool long_names = std::any_of(o.orders.begin(), o.orders.end(), [](const std::string& t) {
      return t.find(',') != std::string::npos;
    });
    option("--orders", join(o.orders, long_names ? ";" : ","));
  }
  option("--order", r.order);
  option("--samples", std::to_string(o.samples));
  option("--seed", std::to_string(r.seed));
  option("--truth", o.truth);
  option("--spill", o.spill);
  option("--level", r.level);
  option("--capacity", r.capacity);
  option("--layout", r.layout);
  for (const Model& m : models())
    for (const OptionSpec& spec : m.options) {
      const auto given = r.options.find(spec.name);
      if (m.name != r.model.value_or(standard_model().name) || given == r.options.end()) continue;
      for (const std::string& text : given->second) {
        if (spec.kind != OptionKind::flag) option(as_argument(spec).c_str(), text);
        else if (text == "on") add(as_argument(spec));
      }
    }
  option("--recorded", o.recorded);
  if (o.beyond) add("--beyond");
  return text;
}

}  // namespace tilewright::harness
