#include "core/lowering/gpu/thread_program.h"
namespace tilewright::lowering {
std::string describe(const ThreadProgram&) { return {}; }
}  // namespace tilewright::lowering
