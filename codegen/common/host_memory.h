// Memory that kernels on this machine's processor read and write.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tilewright::codegen {

/// Begins at a multiple of `alignment`, a power of two up to 4096. Small pieces lie together in
/// large pages, where the machine has them: a kernel that goes through many weights once waits for
/// a page's address at each. Null where there is not so much memory. Freed with the last piece of
/// its page.
std::shared_ptr<void> host_memory(std::size_t bytes, std::size_t alignment = 64);

/// Memory that holds these bytes and is only read: all that ask for the same bytes get the same
/// memory, so that caches have it once. Null where there is not so much memory.
std::shared_ptr<void> shared_memory(std::span<const std::byte> bytes);

}  // namespace tilewright::codegen
