// The page's engine: one command line in, what `tilewright ... --json` prints out, by the same
// code.
#include <nlohmann/json.hpp>
#include <string>

#include "cli/parse.h"
#include "core/base/error.h"
#include "core/machine/machine.h"
#include "harness/machine_json.h"
#include "harness/verb.h"

namespace {

using nlohmann::ordered_json;
using namespace tilewright;

std::string answer_text;

const std::vector<harness::Verb>& verbs() {
  static const std::vector<harness::Verb> all = harness::harness_verbs();
  return all;
}

/// What `machines` answers, but for the machine "host": a page knows nothing of that.
ordered_json machines() {
  ordered_json all = ordered_json::array();
  for (const std::string& name : machine_names())
    if (name != "host") all.push_back(harness::machine_json(named_machine(name)));
  return {{"machines", std::move(all)}};
}

/// {"status": as the command's exit status, "answer": its document, or "error": its line}.
ordered_json answer(const std::string& question) {
  try {
    const auto asked = nlohmann::json::parse(question);
    auto arguments = asked.at("words").get<std::vector<std::string>>();
    const std::string name = arguments.empty() ? "" : arguments.front();
    if (name == "machines") return {{"status", 0}, {"answer", machines()}};
    for (const harness::Verb& v : verbs()) {
      if (v.name != name) continue;
      arguments.erase(arguments.begin());
      harness::Asked all = cli::parse_arguments(v, arguments).asked;
      if (asked.contains("subject")) all.subject_text = asked["subject"].get<std::string>();
      harness::Answer said = harness::ask(v, all);
      ordered_json reply{{"status", said.ok() ? 0 : 3}};
      reply["answer"] = std::move(said.json);
      return reply;
    }
    throw InputError({.where = "verb", .value = name, .problem = "is not a verb"});
  } catch (const InputError& e) {
    return {{"status", 2}, {"error", e.what()}};
  } catch (const std::exception& e) {
    return {{"status", 1}, {"error", e.what()}};
  }
}

}  // namespace

/// Room for a text that the page is about to write.
extern "C" __attribute__((export_name("room"))) char* room(int bytes) {
  static std::string text;
  text.resize(static_cast<std::size_t>(bytes));
  return text.data();
}

/// `question`: {"words": the command line as a list of texts, "subject": the text of the workload
/// or plan file that the command line names, left out where it names none}. Returns the answer's
/// text, which ends with a zero byte and is valid until the next call.
extern "C" __attribute__((export_name("ask"))) const char* ask(const char* question, int bytes) {
  answer_text = answer(std::string(question, static_cast<std::size_t>(bytes))).dump();
  return answer_text.c_str();
}
