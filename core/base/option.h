// Options of models, targets, machines and verbs. One OptionSpec says everything that is known of
// an option; the command line, Python, batch lines, sweeps, answers and the reference pages read
// it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

enum class OptionKind : std::uint8_t {
  flag,     ///< "on" or "off"; a switch on the command line, true or false elsewhere
  text,     ///< any text; `accepted` describes it
  choice,   ///< one of `names`
  integer,  ///< a whole number from `low` to `high`
  number,   ///< a finite number from `least` to `most`
  /// NAME=VALUE of another option beside it, by its name in answers (hyphens for underscores): how
  /// files that were recorded earlier give it.
  assignment,
  path,   ///< a text: a file or a folder
  pairs,  ///< a text: NAME=VALUE, several with commas between; an object in JSON
  /// A text: items with commas between; a list in JSON. A repeated one is lists, each with a
  /// semicolon behind it where JSON gives several.
  list,
  size,  ///< a text: bytes with a unit; a whole number of bytes in JSON
};

/// What a path becomes: nothing, where it is only read; a file that is whole or not there; a file
/// that grows line by line; a folder, made where it is missing. An output that cannot be written is
/// refused before the verb begins.
enum class Writes : std::uint8_t { nothing, file, lines, folder };

struct OptionSpec {
  /// Words with hyphens between: "write-weight" is --write-weight on the command line and
  /// write_weight in Python, batch lines, sweeps and answers.
  std::string name;
  OptionKind kind = OptionKind::text;
  std::vector<std::string> names = {};  ///< of a choice
  Writes writes = Writes::nothing;      ///< of a path
  /// Of a file that is written: the endings that its name may have (".svg"; "": none). Empty: any.
  std::vector<std::string> endings = {};
  std::int64_t low = 1;  ///< of an integer
  std::uint64_t high = INT64_MAX;
  double least = 0, most = 1e6;  ///< of a number
  std::string accepted = {};     ///< of a text: what an error says is accepted
  /// The default as text; empty: none, `fallback` says what happens then. Flags are off.
  std::string standard = {};
  /// What the paper prints, where the default is something else; empty: the default. --published
  /// takes it.
  std::string published = {};
  std::string fallback = {};     ///< "by the tiles": what holds where there is no default
  std::string value = {};        ///< what stands for the value in the help; empty: by kind
  std::string help = {};         ///< what it is, without accepted values and default
  std::string source = {};       ///< the section or equation that it is of
  std::string letter = {};       ///< "m" for -m
  bool repeated = false;         ///< may be given several times; a list in Python
  bool in_answers = true;        ///< among the "options" of answers
  std::string answer_name = {};  ///< its name there, where it is another; written as `name` is
  std::string key = {};          ///< its name in JSON and Python, where as_key has another
  /// Of a target's option: the verbs that have it ("batch": lines of one); empty: every verb that
  /// asks targets.
  std::vector<std::string> verbs = {};
};

/// A choice of yes and no; yes by default.
OptionSpec yes_or_no(const char* name, const char* help, const char* source);

/// Options as they were given, by OptionSpec::name: one text, or several of a repeated option.
using OptionValues = std::map<std::string, std::vector<std::string>, std::less<>>;

/// "--write-weight"
std::string as_argument(const OptionSpec& spec);
/// "write_weight", or OptionSpec::key.
std::string as_key(const OptionSpec& spec);
/// "a number from 0 to 1e6", "dag, block, scope, none"
std::string accepted_values(const OptionSpec& spec);
/// The default as people read it: "dag", "off", "by the tiles". Empty where nothing can be said.
std::string default_text(const OptionSpec& spec);
/// What stands for the value in the help: "NAME"; empty of a flag.
std::string value_name(const OptionSpec& spec);
/// "how far loads leave loops (dag or none; default dag; the paper: none)"
std::string help_text(const OptionSpec& spec);
/// Whether the option takes this text.
bool accepts(const OptionSpec& spec, std::string_view text);
/// Throws InputError, with `where` for the option's name, unless the option takes this text.
void check_option(const OptionSpec& spec, std::string_view text, std::string_view where);
/// "write-weight": its name in answers, and in an assignment.
const std::string& answer_name(const OptionSpec& spec);
/// Null where there is none with this as_key.
const OptionSpec* find_option_by_key(std::span<const OptionSpec> specs, std::string_view key);
/// Null where there is none of that name.
const OptionSpec* find_option(std::span<const OptionSpec> specs, std::string_view name);
/// Those of `values` that `specs` or defaults_options() has.
OptionValues options_among(const OptionValues& values, std::span<const OptionSpec> specs);

/// The record as JSON: {"name": "--write-weight", "default", "help", "key", "kind", "accepted",
/// ...}.
nlohmann::ordered_json to_json(const OptionSpec& spec);
/// A JSON value as the option's texts: true, 3, "dag", ["a", "b"], as Python and batch lines give
/// them. Throws InputError with `where` and `field` where the JSON type or the value is not the
/// option's.
std::vector<std::string> option_texts(const OptionSpec& spec, const nlohmann::ordered_json& value,
                                      std::string_view where, std::string_view field);

/// Which values hold where none is given. Both are options of every model: --ours and --published.
enum class Defaults : std::uint8_t { ours, published };
/// Their specs, "published" and "ours".
std::span<const OptionSpec> defaults_options();

/// The values of one set of options: those given, checked, over the defaults. Reading takes an
/// option's name as in its spec; a name that is not among the specs is a broken invariant.
class Settings {
 public:
  /// `owner` says whose options they are in errors ("target cpu"). Throws InputError for a value
  /// that an option does not take, and for a name that is neither among the specs nor among
  /// defaults_options(). The specs must outlive the settings.
  Settings(std::span<const OptionSpec> specs, const OptionValues& values, std::string owner);

  /// Given by the user, not filled in.
  bool given(std::string_view name) const;
  /// Given or filled in.
  bool has(std::string_view name) const;

  // Of options that have a value. The kind must be the spec's.
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;  ///< also a choice; "" where it has none
  const std::vector<std::string>& texts(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::uint64_t whole(std::string_view name) const;  ///< an integer from 0 that may exceed 2^63
  double number(std::string_view name) const;
  std::optional<std::int64_t> find_integer(std::string_view name) const;
  std::optional<std::string> find_text(std::string_view name) const;

  /// A choice as the enumeration that `from_name` reads: every name that the spec accepts.
  template <class T>
  T choice(std::string_view name, std::optional<T> (*from_name)(std::string_view)) const {
    const std::optional<T> value = from_name(text(name));
    if (!value) broken(name, "accepts a name that nothing reads");
    return *value;
  }

  /// The value of this option is bad for a reason that its spec cannot say.
  [[noreturn]] void refuse(std::string_view name, std::string problem, std::string accepted) const;

  /// None where neither --ours nor --published was given: ours hold.
  std::optional<Defaults> defaults() const { return defaults_; }
  /// {"write_weight": 1.0, ...}: every option with OptionSpec::in_answers, in the order of the
  /// specs, defaults filled in; null where there is none. Last "defaults", where defaults() says
  /// something.
  nlohmann::ordered_json to_json() const;
  std::span<const OptionSpec> specs() const { return specs_; }

 private:
  struct Value {
    std::vector<std::string> texts = {};
    bool given = false;
  };
  void set(const OptionSpec& spec, const std::vector<std::string>& texts);
  void assign(const OptionSpec& by, const std::string& text);
  const Value& value(std::string_view name) const;
  const Value& value(std::string_view name, OptionKind kind) const;
  [[noreturn]] static void broken(std::string_view name, const char* what);

  std::span<const OptionSpec> specs_;
  std::vector<Value> values_;  ///< by position in specs_
  std::string owner_;
  std::optional<Defaults> defaults_ = {};
};

}  // namespace tilewright
