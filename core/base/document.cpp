#include "core/base/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/base/error.h"

namespace tilewright {
namespace {

using Kind = DocumentValue::Kind;

constexpr std::size_t kMaxValues = 200'000;
constexpr int kMaxDepth = 64;

std::string located(std::string_view where, int line) {
  return line > 0 ? std::string(where) + ":" + std::to_string(line) : std::string(where);
}

[[noreturn]] void fail_at(std::string_view where, int line, std::string field, std::string value,
                          std::string problem, std::string accepted) {
  throw InputError({.where = located(where, line),
                    .field = std::move(field),
                    .value = std::move(value),
                    .problem = std::move(problem),
                    .accepted = std::move(accepted)});
}

/// Counts values and depth on the way in, so that aliases cannot blow a document up.
class Limits {
 public:
  explicit Limits(std::string_view where) : where_(where) {}
  void enter(int line) {
    if (++count_ > kMaxValues) {
      fail_at(where_, line, "", "", "the document has too many values",
              "at most " + std::to_string(kMaxValues));
    }
    if (++depth_ > kMaxDepth) {
      fail_at(where_, line, "", "", "the document is nested too deeply",
              "at most " + std::to_string(kMaxDepth) + " levels");
    }
  }
  void leave() { --depth_; }
  std::string_view where() const { return where_; }

 private:
  std::string_view where_;
  std::size_t count_ = 0;
  int depth_ = 0;
};

DocumentValue convert(const YAML::Node& node, Limits& limits) {
  DocumentValue r;
  r.line = node.Mark().line + 1;
  limits.enter(r.line);
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      break;
    case YAML::NodeType::Scalar:
      r.kind = node.Tag() == "?" || node.Tag().empty() ? Kind::plain : Kind::string;
      r.text = node.Scalar();
      break;
    case YAML::NodeType::Sequence:
      r.kind = Kind::list;
      for (const auto& item : node) r.items.push_back(convert(item, limits));
      break;
    case YAML::NodeType::Map: {
      r.kind = Kind::map;
      std::set<std::string> seen;
      for (const auto& entry : node) {
        const int line = entry.first.Mark().line + 1;
        if (!entry.first.IsScalar()) {
          fail_at(limits.where(), line, "", "", "a key is not plain text", "text keys");
        }
        const std::string key = entry.first.Scalar();
        if (!seen.insert(key).second) {
          fail_at(limits.where(), line, key, "", "is given twice", "each key once");
        }
        r.entries.emplace_back(key, convert(entry.second, limits));
        if (r.entries.back().second.line <= 0) r.entries.back().second.line = line;
      }
      break;
    }
  }
  limits.leave();
  return r;
}

DocumentValue convert(const nlohmann::json& j, Limits& limits) {
  DocumentValue r;
  limits.enter(0);
  switch (j.type()) {
    case nlohmann::json::value_t::null:
    case nlohmann::json::value_t::discarded:
    case nlohmann::json::value_t::binary:
      break;
    case nlohmann::json::value_t::string:
      r.kind = Kind::string;
      r.text = j.get<std::string>();
      break;
    case nlohmann::json::value_t::boolean:
      r.kind = Kind::boolean;
      r.text = j.get<bool>() ? "true" : "false";
      break;
    case nlohmann::json::value_t::number_float:
      r.kind = Kind::number;
      r.text = shortest(j.get<double>());
      break;
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      r.kind = Kind::number;
      r.text = j.dump();
      break;
    case nlohmann::json::value_t::array:
      r.kind = Kind::list;
      for (const auto& item : j) r.items.push_back(convert(item, limits));
      break;
    case nlohmann::json::value_t::object:
      r.kind = Kind::map;
      for (const auto& [key, item] : j.items()) r.entries.emplace_back(key, convert(item, limits));
      break;
  }
  limits.leave();
  return r;
}

/// Position of the first byte that is no valid UTF-8, or a control character that YAML lacks.
std::optional<std::size_t> first_bad_byte(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = c < 0x80         ? 1
                               : (c >> 5) == 6  ? 2
                               : (c >> 4) == 14 ? 3
                               : (c >> 3) == 30 ? 4
                                                : 0;
    const bool control = c < 0x20 && c != '\n' && c != '\r' && c != '\t';
    if (length == 0 || control || i + length > text.size()) return i;
    std::uint32_t point = length == 1 ? c : c & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return i;
      point = (point << 6) | (next & 0x3f);
    }
    constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLeast[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return i;
    i += length;
  }
  return std::nullopt;
}

/// Notes where a document begins and nothing else.
class DocumentStart : public YAML::EventHandler {
 public:
  int line() const { return line_; }
  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

std::string shape_of(const DocumentValue& v) {
  switch (v.kind) {
    case Kind::null:
      return "nothing";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a mapping";
    default:
      return v.text.empty() ? "an empty text" : v.text;
  }
}

}  // namespace

int count_yaml_documents(const std::string& text, int* line) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStart start;
  int count = 0;
  while (count < 2 && parser.HandleNextDocument(start)) ++count;
  if (line != nullptr) *line = start.line();
  return count;
}

void check_length(std::string_view text, std::string_view where) {
  if (text.size() > kMostText)
    fail_at(where, 0, "", std::to_string(text.size()) + " characters", "are too many",
            "at most " + std::to_string(kMostText));
}

std::string read_text(const std::string& path, std::string_view accepted) {
  std::error_code error;
  std::ifstream in(path, std::ios::binary);
  const bool is_folder = std::filesystem::is_directory(path, error);
  std::string text(kMostText + 1, '\0');
  if (in && !is_folder) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (is_folder || in.bad() || (!in && in.gcount() == 0 && !in.eof()))
    fail_at(path, 0, "", "", "cannot be read", std::string(accepted));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostText)
    fail_at(path, 0, "", "", "is too long", "at most " + std::to_string(kMostText) + " characters");
  return text;
}

DocumentValue read_yaml(std::string_view text, std::string_view where) {
  check_length(text, where);
  if (const auto bad = first_bad_byte(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(*bad), '\n');
    fail_at(where, static_cast<int>(line), "", "", "a byte is not text", "UTF-8");
  }
  try {
    const std::string owned(text);
    int line = 0;
    if (count_yaml_documents(owned, &line) > 1) {
      fail_at(where, line, "", "", "a second document begins", "one YAML document");
    }
    Limits limits(where);
    return convert(YAML::Load(owned), limits);
  } catch (const YAML::Exception& e) {
    fail_at(where, e.mark.is_null() ? 0 : e.mark.line + 1, "", "", "no valid YAML: " + e.msg, "");
  }
}

DocumentValue read_json(const nlohmann::json& j, std::string_view where) {
  Limits limits(where);
  return convert(j, limits);
}

std::string Field::where() const { return located(where_, value_->line); }

void Field::fail(std::string problem, std::string accepted) const {
  throw InputError({.where = where(),
                    .field = path_,
                    .value = shape_of(*value_),
                    .problem = std::move(problem),
                    .accepted = std::move(accepted)});
}

void Field::only(std::initializer_list<const char*> keys) const {
  if (!is_map()) fail("is not a mapping", "a mapping");
  const std::vector<std::string> known(keys.begin(), keys.end());
  for (const auto& [key, value] : value_->entries) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest(key, known);
    fail_at(where_, value.line, path_.empty() ? "key" : path_, key,
            near.empty() ? "is not a known key" : "is not a known key; did you mean " + near + "?",
            join(known));
  }
}

std::optional<Field> Field::get(std::string_view key) const {
  if (!is_map()) fail("is not a mapping", "a mapping");
  for (const auto& [name, value] : value_->entries) {
    if (name != key) continue;
    if (value.kind == Kind::null) return std::nullopt;
    return Field(value, where_, path_.empty() ? name : path_ + "." + name);
  }
  return std::nullopt;
}

Field Field::at(std::string_view key) const {
  if (auto field = get(key)) return *field;
  throw InputError({.where = where(),
                    .field = path_.empty() ? std::string(key) : path_ + "." + std::string(key),
                    .value = "",
                    .problem = "is missing",
                    .accepted = ""});
}

std::vector<std::pair<std::string, Field>> Field::entries() const {
  if (!is_map()) fail("is not a mapping", "a mapping");
  std::vector<std::pair<std::string, Field>> r;
  for (const auto& [name, value] : value_->entries) {
    r.emplace_back(name, Field(value, where_, path_.empty() ? name : path_ + "." + name));
  }
  return r;
}

std::vector<Field> Field::items() const {
  if (!is_list()) fail("is not a list", "a list");
  std::vector<Field> r;
  for (std::size_t i = 0; i < value_->items.size(); ++i) {
    r.emplace_back(value_->items[i], where_, path_ + "[" + std::to_string(i) + "]");
  }
  return r;
}

std::string Field::text() const {
  if (value_->kind != Kind::plain && value_->kind != Kind::string) fail("is not text", "text");
  return value_->text;
}

std::string Field::identifier(const char* what) const {
  std::string name = text();
  if (!is_identifier(name)) {
    fail(std::string("is not a name of ") + what,
         "letters, digits and _, no digit first, at most 64");
  }
  return name;
}

std::int64_t Field::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t v = 0;
  const std::string& t = value_->text;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  const bool number = value_->kind == Kind::plain || value_->kind == Kind::number;
  if (!number || error != std::errc() || end != t.data() + t.size() || v < least || v > most) {
    const bool unbounded = most == INT64_MAX;
    fail("is not accepted",
         "an integer of " + std::to_string(least) +
             (unbounded ? " or more, within 64 bits" : " to " + std::to_string(most)));
  }
  return v;
}

double Field::real() const {
  double v = 0;
  const std::string& t = value_->text;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  const bool number = value_->kind == Kind::plain || value_->kind == Kind::number;
  if (!number || error != std::errc() || end != t.data() + t.size() || !std::isfinite(v)) {
    fail("is not a number", "a finite number");
  }
  return v;
}

bool Field::boolean() const {
  const bool scalar = value_->kind == Kind::plain || value_->kind == Kind::boolean;
  if (!scalar || (value_->text != "true" && value_->text != "false")) {
    fail("is neither true nor false", "true or false");
  }
  return value_->text == "true";
}

}  // namespace tilewright
