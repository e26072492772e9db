// What the tool can be asked, a record each. The command line, Python, lines of a batch, points of
// a sweep and the reference pages loop over these records and know no verb or option by name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/option.h"
#include "harness/answer.h"
#include "harness/bound_option.h"
#include "harness/request.h"

namespace tilewright::harness {

struct Verb {
  std::string name;
  std::string summary;
  std::string subject = {};  ///< "W", "[W]", "[M]", "PLAN", "W|PLAN", "ID", or empty: takes none
  std::string details = {};  ///< further lines of the help
  std::string returns = {};  ///< what Python's docstring says beside the summary
  std::vector<OptionSpec> options = {};  ///< its own
  bool models = false;                   ///< makes or takes plans: has the options of models, too
  bool targets = false;                  ///< has the options of --target
  /// `settings` are those of `options`; the request has them, the models' and the target's.
  Answer (*run)(const Request& request, const Settings& settings) = nullptr;
};

/// The verbs of this folder, in the order of the help; those of experiments/report/verbs.h are
/// these and the papers'.
std::vector<Verb> harness_verbs();

/// Options of a request that several verbs have, by name: each must be one of request_options().
std::vector<OptionSpec> shared_options(std::initializer_list<std::string_view> names);
const std::vector<Bound<Request>>& request_options();

/// What a verb is asked. Nothing is checked yet.
struct Asked {
  std::string subject = {};
  /// From Python: the text of a workload, plan or machine file that there is no file of.
  std::optional<std::string> subject_text = {}, machine_text = {};
  OptionValues options = {};  ///< the verb's, models' and targets', by name
  Progress progress = {};
};

/// Checks the verb's and the target's options; models' options are checked by the model that is
/// asked. Throws InputError.
Request request_of(const Verb& verb, const Asked& asked);
/// The verb's own options, checked. The verb must outlive them.
Settings settings_of(const Verb& verb, const Asked& asked);
/// The answer. Outputs that cannot be written are refused before anything else is done. Throws
/// InputError.
Answer ask(const Verb& verb, const Asked& asked);

/// The settings of the request's target, checked: of the options that the target has for this verb.
/// Throws InputError naming the target and what it accepts.
Settings target_settings(const Request& request, std::string_view target, std::string_view verb);

/// A verb's options by whose they are, in the order of the help.
struct OptionGroup {
  std::string of;  ///< empty: the verb's own; "target cpu", "every model", the models that share it
  std::vector<const OptionSpec*> options;
};
std::vector<OptionGroup> option_groups(const Verb& verb);
/// All of them; several of one name where models differ in what they take under it.
std::vector<const OptionSpec*> options_of(const Verb& verb);

/// The values of a JSON object by as_key, as Python and lines of a batch give them. A value must
/// have the form that an option of this key takes; null is none. Throws InputError with `where`,
/// the key, and what is accepted; for a key that is no option's and not among `others`, the nearest
/// first.
OptionValues option_values(const std::vector<const OptionSpec*>& options,
                           const nlohmann::ordered_json& object, std::string_view where,
                           const std::vector<std::string>& others = {});

/// What an error says is accepted: the nearest first, because of many names it shows the beginning.
std::string with_nearest(std::string_view given, const std::vector<std::string>& names);

/// The record: name, summary, subject, details, returns, and its options, each with "of".
nlohmann::ordered_json to_json(const Verb& verb);

}  // namespace tilewright::harness
