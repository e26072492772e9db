#include "core/base/leftovers.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <mutex>
#include <set>
#include <thread>

namespace tilewright {
namespace {

struct Paths {
  std::mutex mutex;
  std::set<std::filesystem::path> all;
};

/// Never destroyed: a signal may come while the process ends.
Paths& paths() {
  static Paths& paths = *new Paths;
  return paths;
}

int told[2] = {-1, -1};  // a pipe: what a handler may do is to write to it

extern "C" void tell(int signal) {
  const int before = errno;
  const char byte = static_cast<char>(signal);
  if (::write(told[1], &byte, 1) != 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  errno = before;
}

void wait_for_signal() {
  char signal = 0;
  while (::read(told[0], &signal, 1) != 1)
    if (errno != EINTR) return;
  remove_leftovers();
  std::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
}

}  // namespace

void leftover(const std::filesystem::path& path) {
  const std::lock_guard lock(paths().mutex);
  paths().all.insert(path);
}

void no_leftover(const std::filesystem::path& path) {
  const std::lock_guard lock(paths().mutex);
  paths().all.erase(path);
}

void remove_leftovers() {
  const std::lock_guard lock(paths().mutex);
  std::error_code ignored;
  for (const std::filesystem::path& path : paths().all) std::filesystem::remove_all(path, ignored);
  paths().all.clear();
}

void remove_leftovers_on_signals() {
  if (told[0] >= 0 || ::pipe(told) != 0) return;
  std::thread(wait_for_signal).detach();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    struct sigaction ours = {};
    ours.sa_handler = tell;
    ours.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &ours, nullptr);
  }
}

}  // namespace tilewright
