// Reading documents strictly: YAML and JSON become one tree of values that remembers lines, and
// every access says what it accepts. For the readers of this library; not for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright {

/// A value of a document. Maps keep their order; keys are unique.
struct DocumentValue {
  enum class Kind : std::uint8_t { null, plain, string, number, boolean, list, map };
  Kind kind = Kind::null;  ///< plain: an unquoted YAML scalar, which may be text or a number
  std::string text = {};
  int line = 0;  ///< from 1; 0: unknown (JSON)
  std::vector<DocumentValue> items = {};
  std::vector<std::pair<std::string, DocumentValue>> entries = {};
};

/// Characters of a workload, plan, machine, sweep or program.
inline constexpr std::size_t kMostText = 4 << 20;

/// Throws InputError where the text is longer.
void check_length(std::string_view text, std::string_view where);

/// The text of such a file. Throws InputError with the path where it cannot be read or is longer.
std::string read_text(const std::string& path, std::string_view accepted);

/// One YAML document. Throws InputError with the line where it is none, has a key twice, is nested
/// too deeply or too large (aliases count each time they are used).
DocumentValue read_yaml(std::string_view text, std::string_view where);
DocumentValue read_json(const nlohmann::json& j, std::string_view where);

/// 0, 1 or 2: no document, one, or more (what follows a document without being one counts too);
/// `line` is where the last one begins. Throws YAML::Exception. Then YAML::Load reads the one:
/// YAML::LoadAll does not end on texts such as ",a".
int count_yaml_documents(const std::string& text, int* line = nullptr);

/// A place in a document, as readers walk it. Every failure is an InputError with file, line and
/// path ("kernels[0].tiles.m"). Refers to the value, which must outlive it.
class Field {
 public:
  Field(const DocumentValue& value, std::string where, std::string path = {})
      : value_(&value), where_(std::move(where)), path_(std::move(path)) {}

  const DocumentValue& value() const { return *value_; }
  const std::string& path() const { return path_; }
  int line() const { return value_->line; }
  /// "file:12", or "file" where the line is unknown.
  std::string where() const;

  bool is_map() const { return value_->kind == DocumentValue::Kind::map; }
  bool is_list() const { return value_->kind == DocumentValue::Kind::list; }
  bool is_null() const { return value_->kind == DocumentValue::Kind::null; }

  /// Refuses keys that are not listed, with the nearest that is. Requires a map.
  void only(std::initializer_list<const char*> keys) const;
  /// The entry, or nothing where it is absent or null. Requires a map.
  std::optional<Field> get(std::string_view key) const;
  /// The entry; it must be there.
  Field at(std::string_view key) const;
  /// Entries of a map, in order; keys are in each field's path.
  std::vector<std::pair<std::string, Field>> entries() const;
  std::vector<Field> items() const;

  /// A scalar that is text.
  std::string text() const;
  std::string identifier(const char* what) const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// A finite number.
  double real() const;
  bool boolean() const;

  [[noreturn]] void fail(std::string problem, std::string accepted) const;

 private:
  const DocumentValue* value_;
  std::string where_;
  std::string path_;
};

/// A scalar as YAML writes it: plain where that reads back as the same text, else quoted.
std::string yaml_scalar(std::string_view text);
/// A finite number whose shortest text reads back to the same value.
std::string shortest(double value);

/// "2.6 GHz", "131 GB/s", "2995.2 GFLOP/s": a non-negative number with a decimal prefix (K, M, G,
/// T) of the unit, or in the unit itself when neither is given. Nothing for anything else.
std::optional<double> parse_quantity(std::string_view text, std::string_view unit);
/// parse_quantity reads it back to the same value.
std::string quantity_text(double value, std::string_view unit);

}  // namespace tilewright
