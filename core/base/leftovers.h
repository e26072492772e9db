// Temporary files and folders, known by their paths, so that a process that is interrupted can remove
// them before it ends.
#pragma once

#include <filesystem>

namespace tilewright {

/// From now on the path goes with the process. From several threads.
void leftover(const std::filesystem::path& path);
/// It has become something to keep, or is gone.
void no_leftover(const std::filesystem::path& path);
/// Removes everything that is still there, folders with all that is in them.
void remove_leftovers();

/// From now on SIGINT, SIGTERM and SIGHUP, where they are not ignored, remove what is left over and then
/// end the process as they would have. A second one ends it at once. For a program, not for a library.
void remove_leftovers_on_signals();

}  // namespace tilewright
