#include "harness/points.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/base/error.h"
#include "core/base/format.h"
#include "harness/request.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void cannot(const std::string& option, const std::string& path,
                         const std::string& problem, const std::string& accepted) {
  throw InputError({.where = option, .value = path, .problem = problem, .accepted = accepted});
}

std::string key_of(const std::string& experiment, const std::string& key) {
  return experiment + "|" + key;
}

ordered_json header_of(const std::string& experiment, const std::string& fingerprint) {
  return {{"schema", 1}, {"experiment", experiment}, {"fingerprint", fingerprint}};
}

std::string read_whole(int file) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n = 0; (n = ::read(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

/// Whether a file may be emptied: it is a journal, nothing, or what is left of a torn first line.
bool begins_a_journal(std::string_view text, const Journal& journal) {
  const std::string_view start = R"({"schema":1,"experiment":")";
  const std::size_t n = std::min(start.size(), text.size());
  return journal.header.contains("experiment") || text.substr(0, n) == start.substr(0, n);
}

}  // namespace

Journal read_journal(std::string_view text) {
  Journal journal;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;
    ordered_json line = ordered_json::parse(text.substr(begin, end - begin), nullptr, false);
    if (begin == 0) {
      if (!line.is_object()) break;
      journal.header = std::move(line);
    } else if (line.is_object() && line.contains("point") && line["point"].is_string() &&
               line.contains("value")) {
      const std::string point = line["point"].get<std::string>();
      journal.points[point] = std::move(line["value"]);
    }
    journal.end = begin = end + 1;
  }
  return journal;
}

Points::~Points() {
  if (file_ >= 0) ::close(file_);
}

void Points::open(const std::string& path, const std::string& experiment,
                  const std::string& fingerprint, bool fresh, const std::string& option) {
  TW_CHECK(file_ < 0, "a journal is opened once");
  path_ = path;
  option_ = option;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0)
    cannot(option, path, std::string("cannot be written (") + std::strerror(errno) + ")",
           "a folder that can be written");
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0)
    cannot(option, path, "is being written by another process",
           "a file that no other run is writing");
  struct stat there = {};
  if (::fstat(file_, &there) != 0 || !S_ISREG(there.st_mode))
    cannot(option, path, "is no regular file", "a file that can be read and written");
  const std::string text = read_whole(file_);
  Journal journal = read_journal(text);
  if (!begins_a_journal(text, journal))
    cannot(option, path, "holds something else", "a new file, or one that this option wrote");
  // A folder of results is begun anew by another experiment; a file that a person names is not.
  if (option != "--out" && journal.header.contains("experiment") &&
      journal.header["experiment"] != experiment)
    cannot(option, path, "holds points of " + journal.header["experiment"].dump(),
           "a new file, or one that this option wrote");
  const ordered_json header = header_of(experiment, fingerprint);
  const bool ours = !fresh && journal.header == header;
  if (::ftruncate(file_, ours ? static_cast<off_t>(journal.end) : 0) != 0)
    cannot(option, path, std::string("cannot be written (") + std::strerror(errno) + ")",
           "a folder that can be written");
  if (ours) {
    known_.merge(journal.points);
  } else {
    append(header.dump() + "\n");
  }
}

void Points::adopt(const std::string& path, const std::string& experiment,
                   const std::string& fingerprint) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return;
  std::ostringstream text;
  text << in.rdbuf();
  Journal journal = read_journal(text.str());
  if (journal.header == header_of(experiment, fingerprint)) known_.merge(journal.points);
}

ordered_json Points::once(const std::string& experiment, const std::string& key,
                          const std::function<ordered_json()>& compute) {
  const std::string full = key_of(experiment, key);
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = known_.find(full); at != known_.end()) {
      ++found_;
      return at->second;
    }
  }
  ordered_json value = compute();
  if (file_ < 0) return value;
  const ordered_json line = {{"point", full}, {"value", value}};
  const std::lock_guard lock(mutex_);
  append(line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  known_[full] = value;
  return value;
}

void Points::append(const std::string& line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(file_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      cannot(option_, path_, std::string("cannot be written (") + std::strerror(errno) + ")",
             "a folder that can be written");
    done += static_cast<std::size_t>(n);
  }
  ::fdatasync(file_);
}

namespace {

std::uint64_t fnv(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// The file that the code at an address was loaded from, as the kernel's map of this process says.
std::optional<std::string> loaded_from(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    words >> std::hex >> begin >> dash >> end;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (!words || at < begin || at >= end) continue;
    const std::size_t path = line.find('/');
    if (path == std::string::npos) return std::nullopt;
    return line.substr(path);
  }
  return std::nullopt;
}

}  // namespace

std::string hash_text(std::string_view text) { return formatted("{:016x}", fnv(text)); }

const std::string& build_hash() {
  static const std::string hash = [] {
    const auto path = loaded_from(reinterpret_cast<const void*>(&hash_text));
    std::ifstream in(path.value_or(""), std::ios::binary);
    std::ostringstream code;
    code << in.rdbuf();
    return hash_text(std::move(code).str());
  }();
  return hash;
}

}  // namespace tilewright::harness
