// "model.onnx:batch=1,seq=128": a file and what its symbolic dimensions are bound to.
#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"

namespace tilewright {

bool names_onnx(std::string_view subject) {
  return subject.ends_with(".onnx") || subject.find(".onnx:") != subject.npos;
}

std::map<std::string, std::int64_t> parse_bindings(std::string_view text, std::string_view where) {
  std::map<std::string, std::int64_t> out;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const std::size_t equals = item.rfind('=');
    std::int64_t n = 0;
    bool good = equals != item.npos && equals > 0;
    if (good) {
      const std::string_view number = item.substr(equals + 1);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
      good =
          error == std::errc() && end == number.data() + number.size() && n >= 0 && n <= 2147483647;
    }
    if (!good || !out.emplace(item.substr(0, equals), n).second)
      throw InputError({.where = std::string(where),
                        .value = "'" + std::string(item.substr(0, 80)) + "'",
                        .problem = good ? "is given twice" : "binds no dimension",
                        .accepted = "NAME=N with N of 0..2147483647, with commas between"});
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

OnnxImport import_named_onnx(std::string_view subject, OnnxOptions options) {
  const std::size_t colon = subject.find(".onnx:");
  if (colon == subject.npos) return import_onnx(std::string(subject), options);
  for (const auto& [name, n] :
       parse_bindings(subject.substr(colon + 6), subject.substr(0, colon + 5)))
    options.bind[name] = n;
  return import_onnx(std::string(subject.substr(0, colon + 5)), options);
}

}  // namespace tilewright
