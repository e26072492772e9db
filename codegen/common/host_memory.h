// Memory that kernels on this machine's processor read and write.
#pragma once

#include <cstddef>
#include <memory>

namespace tilewright::codegen {

/// Begins at a multiple of `alignment`, a power of two up to 4096. Small pieces lie together in large pages, where the machine has
/// them: a kernel that goes through many weights once waits for a page's address at each. Null
/// where there is not so much memory. Freed with the last piece of its page.
std::shared_ptr<void> host_memory(std::size_t bytes, std::size_t alignment = 64);

}  // namespace tilewright::codegen
