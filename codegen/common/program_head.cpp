#include "codegen/common/program_head.h"

#include "codegen/common/lines.h"
#include "core/workload/text.h"

namespace tilewright::codegen {

void check_prefix(const std::string& prefix) {
  if (!is_identifier(prefix))
    throw InputError({.field = "prefix",
                      .value = prefix.substr(0, 80),
                      .problem = "is not an identifier",
                      .accepted = "letters, digits and _, not starting with a digit, at most 64"});
}

std::string program_head(const Schedule& s, const std::string& build_command) {
  const Workload& w = *s.workload;
  std::string text = "// " + harmless(w.name()) + " for " + harmless(s.machine->name) +
                     ", emitted by Tilewright.\n//   " + build_command + "\n//\n";
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    text += "// " + one_line(to_text(w, OpId(i))) + "\n";
  text += "// over";
  for (std::size_t i = 0; i < w.loops().size(); ++i)
    text += (i == 0 ? " " : ", ") + w.loops()[i].name + " < " + std::to_string(w.loops()[i].extent);
  text += "\n//\n";
  for (std::size_t i = 0; i < s.resolved.kernels.size(); ++i)
    text += "// kernel " + std::to_string(i) + ": " +
            one_line(to_text(s.resolved.kernels[i].tree)) + "\n";
  return text + "//\n";
}

}  // namespace tilewright::codegen
