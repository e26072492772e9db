#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace tilewright {

MappedFile::MappedFile(const std::string& path, std::string_view accepted) {
  const auto fail = [&](const std::string& why) {
    throw InputError({.value = path.empty() ? "an empty name" : path,
                      .problem = "cannot be read (" + why + ")",
                      .accepted = std::string(accepted)});
  };
  // A pipe would wait for its writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail(std::strerror(errno));
  struct stat status = {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = regular ? static_cast<std::size_t>(status.st_size) : 0;
  void* const begin = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const std::string why = std::strerror(errno);
  ::close(file);
  if (!regular) fail("no regular file");
  if (begin == MAP_FAILED) fail(why);
  if (begin == nullptr) return;
  mapping_ = std::shared_ptr<const void>(begin, [size](void* p) { ::munmap(p, size); });
  bytes_ = {static_cast<const char*>(begin), size};
}

}  // namespace tilewright
