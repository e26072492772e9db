// A compiled module as loaded: its entry points, its extent, and what line an address stands for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/toolchain.h"
#include "simulator/cuda_host/cuda_host.h"
#include "simulator/cuda_host/device/device_api.h"

namespace tilewright::cuda_host {

struct Entry {
  int parameters = 0;
  void (*call)(void* const*) = nullptr;
};

class Image {
 public:
  ~Image();
  /// Compiles and loads; nothing and a reason where that fails.
  static Result<std::shared_ptr<Image>> build(const Program& program, const BuildOptions& options);

  const Entry* entry(const std::string& kernel) const;
  bool contains(std::uintptr_t p) const { return p - base_ < extent_; }
  /// A place as the runtime keeps it: the return address's distance from the image's base.
  std::uint32_t place(const void* address) const {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) - base_);
  }
  /// The lines of places, through addr2line.
  std::map<std::uint32_t, Place> lines(const std::vector<std::uint32_t>& places) const;

 private:
  void keep_lines(const std::string& name, const std::string& text);
  void add_frame(Place& place, const std::string& frame) const;
  std::optional<Reason> load(const Program& program);

  TemporaryDirectory directory_;
  std::string file_name_;
  std::map<std::string, std::vector<std::string>> texts_;  ///< lines of the program's files
  void* handle_ = nullptr;
  std::map<std::string, Entry> entries_;
  std::uintptr_t base_ = 0, extent_ = 0;
};

}  // namespace tilewright::cuda_host
