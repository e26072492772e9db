// Files in and out. What is written is whole or not there: a file beside the target, renamed over it.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <unistd.h>

#include "harness/request.h"

namespace tilewright::harness {
namespace {

constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;

[[noreturn]] void cannot(std::string_view option, const std::string& path, const char* what,
                         const std::string& why, const char* accepted) {
  throw InputError({.where = std::string(option),
                    .value = path.empty() ? "an empty name" : path,
                    .problem = std::string(what) + (why.empty() ? "" : " (" + why + ")"),
                    .accepted = accepted});
}

}  // namespace

std::string read_file(const std::string& path, std::string_view option) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status))
    cannot(option, path, "cannot be read", "no such file", "a file that can be read");
  if (std::filesystem::is_directory(status))
    cannot(option, path, "cannot be read", "a folder", "a file that can be read");
  if (std::filesystem::is_regular_file(status) &&
      std::filesystem::file_size(path, error) > kMostBytes)
    cannot(option, path, "is too large", "", "a file of at most 64 MiB");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (!in && !in.eof())
    cannot(option, path, "cannot be read", std::strerror(errno), "a file that can be read");
  return std::move(text).str();
}

void write_file(const std::string& path, std::string_view text, std::string_view option) {
  const std::string temporary = path + ".part" + std::to_string(::getpid());
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) {
      const std::string why = std::strerror(errno);
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
      cannot(option, path, "cannot be written", why, "a file in a folder that can be written");
    }
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    cannot(option, path, "cannot be written", error.message(),
           "a file in a folder that can be written");
  }
}

void make_folder(const std::string& path, std::string_view option) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (path.empty() || error || !std::filesystem::is_directory(path))
    cannot(option, path, "cannot be made", error.message(), "a folder that can be written");
}

}  // namespace tilewright::harness
