// Files in and out. What is written is whole or not there, or goes through what is no regular file.
#include "harness/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/document.h"
#include "core/base/format.h"
#include "core/base/leftovers.h"
#include "core/workload/expr.h"
#include "harness/request.h"

namespace tilewright::harness {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr const char* kWritable = "a file in a folder that can be written";

[[noreturn]] void cannot(std::string_view option, const std::string& path, const char* what,
                         const std::string& why, const char* accepted) {
  throw InputError({.where = std::string(option),
                    .value = path.empty() ? "an empty name" : path,
                    .problem = std::string(what) + (why.empty() ? "" : " (" + why + ")"),
                    .accepted = accepted});
}

/// The open descriptor that a path such as /proc/self/fd/1 names.
std::optional<int> descriptor_named(const fs::path& path) {
  const std::string folder = path.parent_path().string(), own = std::to_string(::getpid());
  if (folder != "/proc/self/fd" && folder != "/dev/fd" && folder != "/proc/" + own + "/fd")
    return std::nullopt;
  const std::string number = path.filename().string();
  int descriptor = -1;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), descriptor);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return descriptor;
}

/// Where a path's links lead: a name that is no link, or that of an open descriptor.
fs::path behind_links(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && !descriptor_named(path) && fs::is_symlink(path, error); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

/// -o, --csv
std::string name_in_errors(const OptionSpec& option) {
  return option.letter.empty() ? as_argument(option) : "-" + option.letter;
}

constexpr const char* kFolder = "a folder that can be written";

/// The folder, or where it is missing the nearest one above it, takes new files.
void check_folder(const std::string& path, std::string_view option) {
  fs::path at = fs::absolute(path);
  struct stat there = {};
  while (::stat(at.c_str(), &there) != 0) {
    if (errno != ENOENT || at == at.root_path())
      cannot(option, path, "cannot be made", std::strerror(errno), kFolder);
    at = at.parent_path();
  }
  if (!S_ISDIR(there.st_mode)) cannot(option, path, "cannot be made", "not a folder", kFolder);
  const std::string made = at / (".tilewright.part" + std::to_string(::getpid()));
  if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST)
    cannot(option, path, "cannot be made", std::strerror(errno), kFolder);
  ::rmdir(made.c_str());
}

}  // namespace

/// Writes to a descriptor, which it closes.
class OutputFile::Buffer : public std::streambuf {
 public:
  explicit Buffer(int descriptor) : descriptor_(descriptor), bytes_(1 << 16) {
    setp(bytes_.data(), bytes_.data() + bytes_.size());
  }
  ~Buffer() override { close(); }
  int descriptor() const { return descriptor_; }
  /// 0, or the first errno of a write or the close.
  int error() const { return error_; }
  void close() {
    if (descriptor_ >= 0 && ::close(std::exchange(descriptor_, -1)) != 0 && error_ == 0)
      error_ = errno;
  }

 protected:
  int sync() override {
    const char* at = pbase();
    while (error_ == 0 && at < pptr()) {
      const ssize_t n = ::write(descriptor_, at, static_cast<std::size_t>(pptr() - at));
      if (n >= 0)
        at += n;
      else if (errno != EINTR)
        error_ = errno;
    }
    setp(bytes_.data(), bytes_.data() + bytes_.size());
    return error_ == 0 ? 0 : -1;
  }
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

 private:
  int descriptor_;
  int error_ = 0;
  std::vector<char> bytes_;
};

OutputFile::OutputFile(std::string path, std::string_view option, Becomes becomes)
    : path_(std::move(path)), option_(option), stream_(nullptr) {
  if (path_.empty()) fail("");
  struct stat there = {};
  const bool exists = ::stat(path_.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) fail("a folder");
  const fs::path name = behind_links(path_);
  if (const auto descriptor = descriptor_named(name)) {
    const int copy = ::fcntl(*descriptor, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) fail(std::strerror(errno));
    buffer_ = std::make_unique<Buffer>(copy);
  } else if (exists && !S_ISREG(there.st_mode)) {
    open_through(O_WRONLY);
  } else if (becomes == Becomes::line_by_line || (exists && there.st_nlink > 1)) {
    open_through(O_WRONLY | O_CREAT | O_TRUNC);
  } else {
    name_ = name.string();
    open_beside();
    if (exists) ::fchmod(buffer_->descriptor(), there.st_mode & 07777);
  }
  stream_.rdbuf(buffer_.get());
}

OutputFile::~OutputFile() { drop(); }

void OutputFile::open_through(int flags) {
  const int file = ::open(path_.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666);
  if (file < 0) fail(std::strerror(errno));
  buffer_ = std::make_unique<Buffer>(file);
}

void OutputFile::open_beside() {
  static std::atomic<int> next = 0;  // threads write files of one name, too
  int file = -1;
  do {
    part_ = name_ + ".part" + std::to_string(::getpid()) + "." + std::to_string(next++);
    file = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EEXIST);
  if (file < 0) {
    const std::string why = std::strerror(errno);
    part_.clear();
    fail(why);
  }
  leftover(part_);
  buffer_ = std::make_unique<Buffer>(file);
}

std::ostream& OutputFile::stream() { return stream_; }

void OutputFile::flush() {
  stream_.flush();
  if (buffer_->error() != 0) fail(std::strerror(buffer_->error()));
}

void OutputFile::finish() {
  flush();
  buffer_->close();
  if (buffer_->error() != 0) fail(std::strerror(buffer_->error()));
  if (part_.empty()) return;
  if (::rename(part_.c_str(), name_.c_str()) != 0) fail(std::strerror(errno));
  no_leftover(part_);
  part_.clear();
}

void OutputFile::drop() {
  if (part_.empty()) return;
  ::unlink(part_.c_str());
  no_leftover(part_);
  part_.clear();
}

void OutputFile::fail(const std::string& why) const {
  cannot(option_, path_, "cannot be written", why, kWritable);
}

void check_output(const OptionSpec& option, const std::string& path) {
  const std::string name = name_in_errors(option);
  if (option.writes == Writes::nothing) return;
  if (option.writes == Writes::folder) return check_folder(path, name);
  const auto refuse = [&](const char* why) {
    cannot(name, path, "cannot be written", why, kWritable);
  };
  if (const std::string ending = fs::path(path).extension();
      !option.endings.empty() &&
      std::ranges::find(option.endings, ending) == option.endings.end()) {
    std::vector<std::string> named = option.endings;
    std::erase(named, "");
    cannot(name, path, "does not say in which form", "",
           ("a name that ends in " + join(named, " or ")).c_str());
  }
  if (const auto descriptor = descriptor_named(behind_links(path))) {
    const int flags = ::fcntl(*descriptor, F_GETFL);
    if (flags < 0) refuse(std::strerror(errno));
    if ((flags & O_ACCMODE) == O_RDONLY) refuse(std::strerror(EBADF));
    return;
  }
  struct stat there = {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  // What is written through is not opened twice: a pipe would end.
  const bool through =
      exists && !S_ISDIR(there.st_mode) &&
      (option.writes == Writes::lines || !S_ISREG(there.st_mode) || there.st_nlink > 1);
  if (!through)
    OutputFile(path, name);  // and goes
  else if (::access(path.c_str(), W_OK) != 0)
    refuse(std::strerror(errno));
}

std::string read_file(const std::string& path, std::string_view option) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status))
    cannot(option, path, "cannot be read", "no such file", "a readable file");
  if (std::filesystem::is_directory(status))
    cannot(option, path, "cannot be read", "a folder", "a readable file");
  std::ifstream in(path, std::ios::binary);
  std::string text;
  // What has no size, a device or a pipe, may have no end either.
  for (std::string piece(kPiece, '\0'); in && text.size() <= kMostBytes;) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<std::size_t>(in.gcount()));
  }
  if (text.size() > kMostBytes)
    cannot(option, path, "is too large", "", "a file of at most 64 MiB");
  if (!in && !in.eof())
    cannot(option, path, "cannot be read", std::strerror(errno), "a readable file");
  return text;
}

void write_file(const std::string& path, std::string_view text, std::string_view option) {
  OutputFile out(path, option);
  out.stream().write(text.data(), static_cast<std::streamsize>(text.size()));
  out.finish();
}

namespace {

/// The same workload, with long lists of values as f64 of the file at `path`, and its bytes.
Workload without_long_lists(const Workload& workload, const std::string& path, std::string& bytes) {
  constexpr std::size_t kMostNumbers = 1024, kMostWhole = 65'536;
  WorkloadSpec spec = workload.spec();
  for (Tensor& t : spec.tensors) {
    if (!t.values || t.values->list.size() <= (is_integer(t.dtype) ? kMostWhole : kMostNumbers))
      continue;
    const std::vector<double>& list = t.values->list;
    Values v{.file = path, .offset = static_cast<std::int64_t>(bytes.size()), .type = "f64"};
    bytes.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(double));
    t.values = SharedValues(std::move(v));
  }
  return bytes.empty() ? workload : Workload::create(std::move(spec));
}

}  // namespace

std::string write_with_values(const std::string& path, const Workload& workload,
                              const std::function<std::string(const Workload&)>& text) {
  const std::string beside = path + ".values";
  const bool alone = fs::exists(path) && !fs::is_regular_file(path);
  std::string bytes;
  const std::string said = text(alone ? workload : without_long_lists(workload, beside, bytes));
  read_yaml(said, path);  // what no verb would read is not written
  OutputFile out(path, "-o");
  out.stream() << said;
  out.flush();
  if (!bytes.empty()) write_file(beside, bytes, "-o");
  out.finish();
  return said;
}

void write_plan_file(const std::string& path, const PlanFile& file) {
  write_with_values(path, file.workload, [&file](const Workload& w) {
    PlanFile written = file;
    written.workload = w;
    return to_yaml(written);
  });
}

void make_folder(const std::string& path, std::string_view option) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (path.empty() || error || !std::filesystem::is_directory(path))
    cannot(option, path, "cannot be made", error.message(), "a folder that can be written");
}

}  // namespace tilewright::harness
