// Errors about a name of which there are many.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tilewright {

/// What an error accepts in place of `given`: the three names that are most like it and the command
/// that lists all, "gemm-chain, gemm or another name that tilewright workloads lists".
std::string names_like(std::string_view given, std::span<const std::string> names,
                       std::string_view command);

}  // namespace tilewright
