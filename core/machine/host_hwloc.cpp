// hwloc, opened at run time so that the command needs no library. The few declarations below are of
// the binary interface of hwloc 2; where the header is there at build time they are checked.
#include <dlfcn.h>

#include <cstddef>
#include <memory>

#include "core/machine/host_facts.h"

#if __has_include(<hwloc.h>)
#include <hwloc.h>
#define TILEWRIGHT_HWLOC_HEADER 1
#endif

namespace tilewright {
namespace {

struct CacheAttributes {
  std::uint64_t size;
  unsigned depth;
  unsigned line;
  int ways;  // -1: fully associative, 0: unknown
  int type;
};
struct ObjectHead {
  int type;
  char* subtype;
  unsigned os_index;
  char* name;
  std::uint64_t total_memory;
  CacheAttributes* attributes;
};
constexpr int kCoreType = 2;
constexpr int kFirstCacheType = 4;  // L1; L2 to L5 follow
constexpr int kCacheLevels = 5;

#ifdef TILEWRIGHT_HWLOC_HEADER
#if HWLOC_API_VERSION >= 0x00020000 && HWLOC_API_VERSION < 0x00030000
static_assert(offsetof(ObjectHead, attributes) == offsetof(hwloc_obj, attr));
static_assert(offsetof(CacheAttributes, ways) ==
              offsetof(hwloc_obj_attr_u::hwloc_cache_attr_s, associativity));
static_assert(offsetof(CacheAttributes, line) ==
              offsetof(hwloc_obj_attr_u::hwloc_cache_attr_s, linesize));
static_assert(kCoreType == HWLOC_OBJ_CORE && kFirstCacheType == HWLOC_OBJ_L1CACHE);
#endif
#endif

/// The library and the functions that are used of it.
class Hwloc {
 public:
  Hwloc() : library_(dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    ok_ = bind(version_, "hwloc_get_api_version") && bind(init_, "hwloc_topology_init") &&
          bind(load_, "hwloc_topology_load") && bind(destroy_, "hwloc_topology_destroy") &&
          bind(depth_, "hwloc_get_type_depth") && bind(count_, "hwloc_get_nbobjs_by_depth") &&
          bind(object_, "hwloc_get_obj_by_depth") && (version_() >> 16) == 2;
    if (!ok_ || init_(&topology_) != 0) {
      topology_ = nullptr;
      return;
    }
    // Without its x86 part, which moves this thread to every processor in turn (hwloc 2.1).
    constexpr unsigned long kExclude = 1;
    int (*components)(void*, unsigned long, const char*) = nullptr;
    if (bind(components, "hwloc_topology_set_components")) components(topology_, kExclude, "x86");
    if (load_(topology_) != 0) {
      destroy_(topology_);
      topology_ = nullptr;
    }
  }
  ~Hwloc() {
    if (topology_ != nullptr) destroy_(topology_);
    if (library_ != nullptr) dlclose(library_);
  }
  Hwloc(const Hwloc&) = delete;
  Hwloc& operator=(const Hwloc&) = delete;

  bool ok() const { return topology_ != nullptr; }
  std::int64_t count(int type) const {
    const int depth = depth_(topology_, type);
    return depth < 0 ? 0 : count_(topology_, depth);
  }
  /// The first object of a type; null where there is none.
  const ObjectHead* first(int type) const {
    const int depth = depth_(topology_, type);
    return depth < 0 ? nullptr : object_(topology_, depth, 0);
  }

 private:
  template <class F>
  bool bind(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;
  void* topology_ = nullptr;
  bool ok_ = false;
  unsigned (*version_)() = nullptr;
  int (*init_)(void**) = nullptr;
  int (*load_)(void*) = nullptr;
  void (*destroy_)(void*) = nullptr;
  int (*depth_)(void*, int) = nullptr;
  unsigned (*count_)(void*, int) = nullptr;
  ObjectHead* (*object_)(void*, int, unsigned) = nullptr;
};

}  // namespace

std::optional<HostTopology> topology_from_hwloc() {
  const Hwloc hwloc;
  if (!hwloc.ok()) return std::nullopt;
  HostTopology r;
  r.source = "hwloc";
  r.cores = hwloc.count(kCoreType);
  for (int level = 1; level <= kCacheLevels; ++level) {
    const int type = kFirstCacheType + level - 1;
    const ObjectHead* object = hwloc.first(type);
    if (object == nullptr || object->attributes == nullptr) continue;
    const CacheAttributes& a = *object->attributes;
    if (a.size == 0) continue;
    r.caches.push_back({.level = level,
                        .size = static_cast<std::int64_t>(a.size),
                        .line = a.line,
                        .ways = a.ways > 0 ? a.ways : 0,
                        .instances = hwloc.count(type)});
  }
  if (r.caches.empty()) return std::nullopt;
  return r;
}

}  // namespace tilewright
