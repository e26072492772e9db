#include "core/base/option.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/format.h"

namespace tilewright {
namespace {

using nlohmann::ordered_json;

constexpr const char* kOn = "on";
constexpr const char* kOff = "off";

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_whole_number(const OptionSpec& spec, std::string_view text) {
  if (const auto value = parsed<std::int64_t>(text))
    return *value >= spec.low && (*value < 0 || static_cast<std::uint64_t>(*value) <= spec.high);
  const auto large = parsed<std::uint64_t>(text);
  return large && *large <= spec.high;
}

bool is_number(const OptionSpec& spec, std::string_view text) {
  const auto value = parsed<double>(text);
  return value && std::isfinite(*value) && *value >= spec.least && *value <= spec.most;
}

/// 1e6, not 1e+06.
std::string short_number(double value) {
  std::string text = formatted("{:g}", value);
  for (const char* sign : {"e+0", "e+"})
    if (const std::size_t at = text.find(sign); at != std::string::npos)
      text.replace(at, std::string_view(sign).size(), "e");
  if (const std::size_t at = text.find("e-0"); at != std::string::npos) text.replace(at, 3, "e-");
  return text;
}

std::string with_hyphens_as(std::string name, char c) {
  std::ranges::replace(name, '-', c);
  return name;
}

bool is_text(OptionKind kind) {
  return kind == OptionKind::text || kind == OptionKind::path || kind == OptionKind::pairs ||
         kind == OptionKind::list || kind == OptionKind::size;
}

bool has_pairs(OptionKind kind) {
  return kind == OptionKind::pairs || kind == OptionKind::assignment;
}

std::string shown_json(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// {"m": 64} as "m=64"s.
std::vector<std::string> pairs_of(const ordered_json& object) {
  std::vector<std::string> pairs;
  for (const auto& [name, value] : object.items())
    pairs.push_back(name + "=" +
                    (value.is_string() ? value.get<std::string>() : shown_json(value)));
  return pairs;
}

bool is_texts(const ordered_json& value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const ordered_json& v) { return v.is_string(); });
}

/// A value of JSON as the text or the number that it stands for, where its kind has such a form.
ordered_json plain(const OptionSpec& spec, const ordered_json& value) {
  if (spec.kind == OptionKind::pairs && value.is_object()) return join(pairs_of(value), ",");
  if (spec.kind == OptionKind::list && is_texts(value))
    return join(value.get<std::vector<std::string>>(), ",");
  if (spec.kind == OptionKind::size && value.is_number_integer()) return shown_json(value) + "B";
  return value;
}

/// What JSON may give.
std::string accepted_json(const OptionSpec& spec) {
  const std::string accepted = accepted_values(spec);
  if (!is_text(spec.kind)) return accepted;
  std::string text = spec.kind == OptionKind::pairs  ? "a string or an object"
                     : spec.kind == OptionKind::list ? "a string or a list of them"
                     : spec.kind == OptionKind::size ? "a string or a whole number of bytes"
                                                     : "a string";
  return accepted.empty() ? text : text + ": " + accepted;
}

std::string one_text(const OptionSpec& spec, const ordered_json& given, std::string_view where,
                     std::string_view field) {
  const ordered_json value = plain(spec, given);
  const bool right = spec.kind == OptionKind::flag      ? value.is_boolean()
                     : spec.kind == OptionKind::integer ? value.is_number_integer()
                     : spec.kind == OptionKind::number  ? value.is_number()
                                                        : value.is_string();
  const std::string shown = shown_json(value);
  const auto text = [&]() -> std::string {
    if (value.is_boolean()) return value.get<bool>() ? kOn : kOff;
    return value.is_string() ? value.get<std::string>() : shown;
  };
  if (right && accepts(spec, text())) return text();
  throw InputError({.where = std::string(where),
                    .field = std::string(field),
                    .value = shown_json(given),
                    .problem = "is not accepted",
                    .accepted = accepted_json(spec)});
}

std::vector<OptionSpec> make_defaults_options() {
  return {{.name = "published",
           .kind = OptionKind::flag,
           .help = "every option of the model as its paper prints it, but for those given",
           .in_answers = false},
          {.name = "ours",
           .kind = OptionKind::flag,
           .help = "every option of the model at our default, which also holds without it",
           .in_answers = false}};
}

}  // namespace

OptionSpec yes_or_no(const char* name, const char* help, const char* source) {
  return {.name = name,
          .kind = OptionKind::choice,
          .names = {"yes", "no"},
          .standard = "yes",
          .help = help,
          .source = source};
}

std::string as_argument(const OptionSpec& spec) { return "--" + spec.name; }

std::string as_key(const OptionSpec& spec) {
  return spec.key.empty() ? with_hyphens_as(spec.name, '_') : spec.key;
}

std::string accepted_values(const OptionSpec& spec) {
  switch (spec.kind) {
    case OptionKind::flag:
      return "true or false";
    case OptionKind::text:
    case OptionKind::path:
      return spec.accepted;
    case OptionKind::pairs:
      return spec.accepted.empty() ? "NAME=VALUE" : spec.accepted;
    case OptionKind::list:
      return spec.accepted.empty() ? "items with commas between" : spec.accepted;
    case OptionKind::size:
      return spec.accepted.empty() ? "a size in bytes (4096B, 32K, 1M)" : spec.accepted;
    case OptionKind::choice:
      return join(spec.names);
    case OptionKind::integer:
      if (spec.high >= INT64_MAX) return formatted("a whole number from {}", spec.low);
      return formatted("a whole number from {} to {}", spec.low, spec.high);
    case OptionKind::assignment:
      return "NAME=VALUE";
    case OptionKind::number:
      return "a number from " + short_number(spec.least) + " to " + short_number(spec.most);
  }
  return "";
}

std::string value_name(const OptionSpec& spec) {
  if (!spec.value.empty()) return spec.value;
  switch (spec.kind) {
    case OptionKind::flag:
      return "";
    case OptionKind::text:
      return "TEXT";
    case OptionKind::choice:
      return "NAME";
    case OptionKind::integer:
      return "N";
    case OptionKind::number:
      return "NUMBER";
    case OptionKind::assignment:
    case OptionKind::pairs:
      return "NAME=VALUE";
    case OptionKind::path:
      return "FILE";
    case OptionKind::list:
      return "NAMES";
    case OptionKind::size:
      return "SIZE";
  }
  return "";
}

std::string help_text(const OptionSpec& spec) {
  std::vector<std::string> more;
  if (spec.kind == OptionKind::choice) {
    const std::vector<std::string> first(spec.names.begin(), spec.names.end() - 1);
    more.push_back(join(first) + (first.empty() ? "" : " or ") + spec.names.back());
  }
  const std::string standard = spec.kind == OptionKind::flag ? "" : default_text(spec);
  if (!standard.empty()) more.push_back("default " + standard);
  if (!spec.published.empty()) more.push_back("the paper: " + spec.published);
  return spec.help + (more.empty() ? "" : " (" + join(more, "; ") + ")");
}

std::string default_text(const OptionSpec& spec) {
  if (!spec.standard.empty()) return spec.standard;
  return spec.kind == OptionKind::flag ? kOff : spec.fallback;
}

bool accepts(const OptionSpec& spec, std::string_view text) {
  switch (spec.kind) {
    case OptionKind::flag:
      return text == kOn || text == kOff;
    case OptionKind::text:
    case OptionKind::assignment:
    case OptionKind::path:
    case OptionKind::pairs:
    case OptionKind::list:
    case OptionKind::size:
      return !text.empty();
    case OptionKind::choice:
      return std::ranges::find(spec.names, text) != spec.names.end();
    case OptionKind::integer:
      return is_whole_number(spec, text);
    case OptionKind::number:
      return is_number(spec, text);
  }
  return false;
}

void check_option(const OptionSpec& spec, std::string_view text, std::string_view where) {
  if (accepts(spec, text)) return;
  const std::string accepted = accepted_values(spec);
  throw InputError({.where = std::string(where),
                    .value = text.empty() ? "an empty text" : std::string(text),
                    .problem = "is not accepted",
                    .accepted = accepted.empty() ? spec.help : accepted});
}

const std::string& answer_name(const OptionSpec& spec) {
  return spec.answer_name.empty() ? spec.name : spec.answer_name;
}

const OptionSpec* find_option(std::span<const OptionSpec> specs, std::string_view name) {
  const auto at = std::ranges::find(specs, name, &OptionSpec::name);
  return at == specs.end() ? nullptr : &*at;
}

const OptionSpec* find_option_by_key(std::span<const OptionSpec> specs, std::string_view key) {
  const auto at = std::ranges::find(specs, key, as_key);
  return at == specs.end() ? nullptr : &*at;
}

OptionValues options_among(const OptionValues& values, std::span<const OptionSpec> specs) {
  OptionValues among;
  for (const auto& [name, texts] : values)
    if (find_option(specs, name) != nullptr || find_option(defaults_options(), name) != nullptr)
      among.emplace(name, texts);
  return among;
}

ordered_json to_json(const OptionSpec& spec) {
  constexpr const char* kKinds[] = {"flag",       "text", "choice", "integer", "number",
                                    "assignment", "path", "pairs",  "list",    "size"};
  const auto or_null = [](const std::string& text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
  };
  return {{"name", as_argument(spec)},
          {"default", default_text(spec)},
          {"help", spec.help},
          {"published", or_null(spec.published)},
          {"kind", kKinds[static_cast<std::size_t>(spec.kind)]},
          {"accepted", or_null(accepted_values(spec))},
          {"repeated", spec.repeated},
          {"value", value_name(spec)},
          {"source", or_null(spec.source)},
          {"key", as_key(spec)}};
}

std::vector<std::string> option_texts(const OptionSpec& spec, const ordered_json& value,
                                      std::string_view where, std::string_view field) {
  if (!spec.repeated) return {one_text(spec, value, where, field)};
  if (has_pairs(spec.kind) && value.is_object()) {
    std::vector<std::string> pairs = pairs_of(value);
    for (const std::string& pair : pairs) one_text(spec, pair, where, field);
    return pairs;
  }
  if (value.is_string()) return {one_text(spec, value, where, field)};
  if (!value.is_array())
    throw InputError({.where = std::string(where),
                      .field = std::string(field),
                      .value = shown_json(value),
                      .problem = "is not accepted",
                      .accepted = has_pairs(spec.kind) ? "a list of strings, or an object"
                                                       : "a list of strings"});
  std::vector<std::string> texts;
  for (const ordered_json& item : value) {
    texts.push_back(one_text(spec, item, where, field));
    if (spec.kind == OptionKind::list) texts.back() += ";";
  }
  return texts;
}

std::span<const OptionSpec> defaults_options() {
  static const std::vector<OptionSpec> specs = make_defaults_options();
  return specs;
}

Settings::Settings(std::span<const OptionSpec> specs, const OptionValues& values, std::string owner)
    : specs_(specs), values_(specs.size()), owner_(std::move(owner)) {
  const auto on = [&](std::string_view name) {
    const auto at = values.find(name);
    return at != values.end() && at->second == std::vector<std::string>{kOn};
  };
  if (on("published") && on("ours"))
    throw InputError({.where = "--published",
                      .value = "beside --ours",
                      .problem = "is not accepted",
                      .accepted = "one of them"});
  if (on("published")) defaults_ = Defaults::published;
  if (on("ours")) defaults_ = Defaults::ours;
  for (const auto& [name, texts] : values) {
    if (find_option(defaults_options(), name) != nullptr) continue;
    const OptionSpec* spec = find_option(specs_, name);
    if (spec == nullptr) {
      std::vector<std::string> known;
      for (const OptionSpec& s : specs_) known.push_back(as_argument(s));
      const std::string near = nearest("--" + name, known);
      throw InputError(
          {.where = owner_,
           .value = "--" + name,
           .problem = "is not one of its options",
           .accepted = known.empty()
                           ? "none: it has no options"
                           : join(known) + (near.empty() ? "" : " (nearest: " + near + ")")});
    }
    set(*spec, texts);
  }
  for (const OptionSpec& spec : specs_)
    if (spec.kind == OptionKind::assignment)
      for (const std::string& text : texts(spec.name)) assign(spec, text);
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (values_[i].given) continue;
    const OptionSpec& spec = specs_[i];
    const bool paper = defaults_ == Defaults::published && !spec.published.empty();
    const std::string& standard = paper ? spec.published : spec.standard;
    if (!standard.empty()) {
      TW_CHECK(accepts(spec, standard), "an option that does not take its own default");
      values_[i].texts = {standard};
    } else if (spec.kind == OptionKind::flag) {
      values_[i].texts = {kOff};
    }
  }
}

void Settings::set(const OptionSpec& spec, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) check_option(spec, text, as_argument(spec));
  values_[static_cast<std::size_t>(&spec - specs_.data())] = {texts, true};
}

void Settings::assign(const OptionSpec& by, const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  std::vector<std::string> known;
  const OptionSpec* named = nullptr;
  for (const OptionSpec& spec : specs_) {
    if (!spec.in_answers) continue;
    known.push_back(answer_name(spec));
    if (known.back() == name) named = &spec;
  }
  const std::string near = nearest(name, known);
  if (named == nullptr || equals == text.size())
    throw InputError({.where = as_argument(by),
                      .value = text.empty() ? "an empty text" : text,
                      .problem = named == nullptr ? "names no option" : "gives no value",
                      .accepted = "NAME=VALUE of " + join(known) +
                                  (near.empty() ? "" : " (nearest: " + near + ")")});
  if (!accepts(*named, text.substr(equals + 1)))
    throw InputError({.where = as_argument(by),
                      .value = text,
                      .problem = "is not accepted",
                      .accepted = name + "=" + accepted_values(*named)});
  set(*named, {text.substr(equals + 1)});
}

void Settings::broken(std::string_view name, const char* what) {
  TW_CHECK(false, "option " + std::string(name) + " " + what);
  std::abort();
}

const Settings::Value& Settings::value(std::string_view name) const {
  const OptionSpec* spec = find_option(specs_, name);
  if (spec == nullptr) broken(name, "has no spec");
  return values_[static_cast<std::size_t>(spec - specs_.data())];
}

const Settings::Value& Settings::value(std::string_view name, OptionKind kind) const {
  const Value& found = value(name);
  if (find_option(specs_, name)->kind != kind) broken(name, "is of another kind");
  if (found.texts.empty()) broken(name, "has no value");
  return found;
}

bool Settings::given(std::string_view name) const { return value(name).given; }

bool Settings::has(std::string_view name) const { return !value(name).texts.empty(); }

bool Settings::flag(std::string_view name) const {
  return value(name, OptionKind::flag).texts.back() == kOn;
}

const std::string& Settings::text(std::string_view name) const {
  static const std::string none;
  const Value& found = value(name);
  return found.texts.empty() ? none : found.texts.back();
}

const std::vector<std::string>& Settings::texts(std::string_view name) const {
  return value(name).texts;
}

std::int64_t Settings::integer(std::string_view name) const {
  return *parsed<std::int64_t>(value(name, OptionKind::integer).texts.back());
}

std::uint64_t Settings::whole(std::string_view name) const {
  return *parsed<std::uint64_t>(value(name, OptionKind::integer).texts.back());
}

double Settings::number(std::string_view name) const {
  return *parsed<double>(value(name, OptionKind::number).texts.back());
}

std::optional<std::int64_t> Settings::find_integer(std::string_view name) const {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}

std::optional<std::string> Settings::find_text(std::string_view name) const {
  return has(name) ? std::optional(text(name)) : std::nullopt;
}

void Settings::refuse(std::string_view name, std::string problem, std::string accepted) const {
  const std::string& given = text(name);
  throw InputError({.where = "--" + std::string(name),
                    .value = given.empty() ? "an empty text" : given,
                    .problem = std::move(problem),
                    .accepted = std::move(accepted)});
}

ordered_json Settings::to_json() const {
  ordered_json json = ordered_json::object();
  for (const OptionSpec& spec : specs_) {
    if (!spec.in_answers) continue;
    ordered_json& to = json[with_hyphens_as(answer_name(spec), '_')];
    if (!has(spec.name)) {
      to = nullptr;
    } else if (spec.repeated) {
      to = texts(spec.name);
    } else if (spec.kind == OptionKind::flag) {
      to = flag(spec.name);
    } else if (spec.kind == OptionKind::integer) {
      to = integer(spec.name);
    } else if (spec.kind == OptionKind::number) {
      to = number(spec.name);
    } else {
      to = text(spec.name);
    }
  }
  if (defaults_) json["defaults"] = *defaults_ == Defaults::ours ? "ours" : "published";
  return json;
}

}  // namespace tilewright
