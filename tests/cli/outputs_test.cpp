// Is an output that cannot be written refused before anything is done, whatever the verb and the
// option? Over the records of all verbs, models and targets.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/error.h"
#include "experiments/report/verbs.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::harness {
namespace {

/// A folder with a file.
class Outputs : public ::testing::Test {
 protected:
  Outputs() { std::ofstream(at("file")) << "before"; }
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      all.insert(entry.path().filename());
    return all;
  }

  TemporaryFolder folder_;
};

/// What the verb says of this value, and of a subject and a machine that are nowhere.
std::string refusal(const Verb& verb, const OptionSpec& option, const std::string& path) {
  Asked asked{.subject = "no/such/subject", .options = {{option.name, {path}}}};
  if (find_option(verb.options, "machine") != nullptr) asked.options["machine"] = {"no/such"};
  try {
    (void)ask(verb, asked);
  } catch (const InputError& e) {
    return e.what();
  }
  return "taken";
}

TEST_F(Outputs, AreLookedAtBeforeTheWork) {
  int outputs = 0;
  for (const Verb& verb : verbs())
    for (const OptionSpec* option : options_of(verb)) {
      if (option->writes == Writes::nothing) continue;
      ++outputs;
      SCOPED_TRACE(verb.name + " " + as_argument(*option));
      const std::string ending = option->endings.empty() ? "" : option->endings.front();
      std::filesystem::create_directory(at("taken" + ending));
      const std::set<std::string> before = names();
      std::vector<std::string> wrong = {at("file/below" + ending)};
      if (option->writes == Writes::folder) {
        wrong.push_back(at("file"));
      } else {
        wrong.push_back(at("no/such" + ending));
        wrong.push_back(at("taken" + ending));
        wrong.push_back(at(std::string(300, 'n') + ending));
        if (!option->endings.empty()) wrong.push_back(at("form.of_another_kind"));
      }
      for (const std::string& path : wrong)
        EXPECT_NE(refusal(verb, *option, path).find(path.substr(0, 80)), std::string::npos)
            << refusal(verb, *option, path);  // of long values errors show the beginning
      // What can be written is not refused, and not made either.
      for (const std::string& path : {at("made" + ending), at("taken/deep/made" + ending)}) {
        if (option->writes != Writes::folder && path.find("deep") != std::string::npos) continue;
        const std::string said = refusal(verb, *option, path);
        EXPECT_EQ(said.find(path + " cannot be"), std::string::npos) << said;
      }
      EXPECT_EQ(names(), before);
    }
  EXPECT_GE(outputs, 15);
}

TEST_F(Outputs, EveryPathIsReadOrWritten) {
  const std::set<std::string> read = {"run --batch",      "measure --batch",     "simulate --trace",
                                      "reproduce --data", "validate --recorded", "emit --cache",
                                      "measure --cache",  "run --cache",         "plan --cache",
                                      "validate --cache"};
  for (const Verb& verb : verbs())
    for (const OptionSpec* option : options_of(verb)) {
      const std::string name = verb.name + " " + as_argument(*option);
      EXPECT_EQ(option->kind == OptionKind::path && option->writes == Writes::nothing,
                read.contains(name))
          << name;
      EXPECT_TRUE(option->kind == OptionKind::path || option->writes == Writes::nothing) << name;
    }
}

/// A file that grows in place is not emptied by the look at it, and one that is read only says so.
TEST_F(Outputs, AFileIsWhatItWasAfterTheLook) {
  const Verb& run = *find_verb("run");
  const OptionSpec& log = *find_option(run.options, "tune-log");
  (void)refusal(run, log, at("file"));
  const Verb& plan = *find_verb("plan");
  (void)refusal(plan, *find_option(plan.options, "out"), at("file"));
  std::string text;
  std::ifstream(at("file")) >> text;
  EXPECT_EQ(text, "before");
  EXPECT_EQ(names(), std::set<std::string>{"file"});
}

}  // namespace
}  // namespace tilewright::harness
