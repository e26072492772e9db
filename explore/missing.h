// What the libraries for wasm32-wasi leave out. The page's engine is one thread: a "thread" runs to
// its end where it begins, and locks are always free. Included before every source.
#pragma once
#ifdef __cplusplus
#include <__config>
#if !_LIBCPP_HAS_THREADS
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

namespace std {

struct mutex {
  void lock() {}
  bool try_lock() { return true; }
  void unlock() {}
};
struct recursive_mutex : mutex {};
struct shared_mutex : mutex {
  void lock_shared() {}
  void unlock_shared() {}
};

class thread {
 public:
  thread() = default;
  template <class F, class... A>
  requires(!is_same_v<remove_cvref_t<F>, thread>) explicit thread(F&& f, A&&... a) {
    invoke(std::forward<F>(f), std::forward<A>(a)...);
  }
  bool joinable() const { return true; }
  void join() {}
  void detach() {}
  static unsigned hardware_concurrency() { return 1; }
};
using jthread = thread;

}  // namespace std
#endif

// No limit is known of a process that is a page.
struct rlimit {
  unsigned long long rlim_cur, rlim_max;
};
#define RLIMIT_AS 9
#define RLIM_INFINITY (~0ULL)
inline int getrlimit(int, rlimit*) { return -1; }
#endif
