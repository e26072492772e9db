// A file's bytes, mapped into memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tilewright {

/// Read-only; pages come in when they are read. Copies share the mapping.
class MappedFile {
 public:
  /// Throws InputError where it is no regular file that can be read.
  MappedFile(const std::string& path, std::string_view accepted);
  std::string_view bytes() const { return bytes_; }

 private:
  std::shared_ptr<const void> mapping_;
  std::string_view bytes_;
};

}  // namespace tilewright
