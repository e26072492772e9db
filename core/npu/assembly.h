// Programs for the emulated NPU as text. docs/npu.md has the grammar and an example.
#pragma once

#include <string>
#include <string_view>

#include "core/npu/program.h"

namespace tilewright::npu {

/// Reads assembly. Throws InputError with the line for what is no program's text; whether the
/// program makes sense for a machine is check()'s question.
Program parse_assembly(std::string_view text, std::string_view where);
/// parse_assembly reads it back to the same program.
std::string to_text(const Program& program);
/// As to_text, each statement with its number (which findings and timelines name) and the pipe of
/// that machine that executes it.
std::string listing(const Program& program, const NpuCore& core);
/// One statement's first line, without indentation or comment: "mad c[0], a[0], b[0], m=16, ...".
std::string to_line(const Statement& statement);

}  // namespace tilewright::npu
