#define FMT_HEADER_ONLY 1  // the command is one file: no shared fmt
#include "core/base/format.h"

#include <fmt/format.h>

namespace tilewright {

std::string format_arguments(fmt::string_view pattern, fmt::format_args arguments) {
  return fmt::vformat(pattern, arguments);
}

}  // namespace tilewright
