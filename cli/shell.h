// What shells and manual readers take: completion scripts and the manual page, written from the
// verbs' records.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::cli {

/// A script that completes verbs, their options, and the names that these take: for bash, zsh
/// (through its bashcompinit) or fish. Throws InputError for another shell.
std::string completion_script(std::string_view shell);

/// The manual page tilewright(1), for man -l or a man1 folder.
std::string manual_page();

}  // namespace tilewright::cli
