// Finished points of an experiment, kept in a file as they come, so that a run that was killed goes
// on where it was.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilewright::harness {

/// A journal of lines of JSON: first {"schema", "experiment", "fingerprint"}, then a line a
/// finished point, {"point", "value"}. A line is written whole and flushed to the disk before the
/// point counts as finished; a torn last line is cut off when the file is opened again, other lines
/// that are no points are passed over. One process at a time.
class Points {
 public:
  /// Keeps nothing: every point is computed.
  Points() = default;
  ~Points();
  Points(const Points&) = delete;
  Points& operator=(const Points&) = delete;

  /// Goes on with the journal at `path` where it has this fingerprint, and begins it anew where it
  /// has another or `fresh` is set. Throws InputError where it cannot be written, is another
  /// experiment's and not of --out, or is being written; `option` is what named it.
  void open(const std::string& path, const std::string& experiment, const std::string& fingerprint,
            bool fresh, const std::string& option = "--out");
  /// Takes the points of another experiment's journal as finished, where its fingerprint is this
  /// one. They are not written again.
  void adopt(const std::string& path, const std::string& experiment,
             const std::string& fingerprint);

  /// What the point `key` of `experiment` is: found, or computed and kept. From several threads at
  /// once; `compute` runs outside the lock. What it throws is not kept.
  nlohmann::ordered_json once(const std::string& experiment, const std::string& key,
                              const std::function<nlohmann::ordered_json()>& compute);

  /// Points that were there before, of those asked for so far.
  std::int64_t found() const { return found_; }

 private:
  void append(const std::string& line);

  std::map<std::string, nlohmann::ordered_json> known_;
  std::string path_, option_ = "--out";
  int file_ = -1;
  std::int64_t found_ = 0;
  mutable std::mutex mutex_;
};

/// What a journal holds: its header, its points, and where its last whole line ends. Of several
/// lines of one point the last counts; lines that are no points are passed over.
struct Journal {
  nlohmann::ordered_json header;
  std::map<std::string, nlohmann::ordered_json> points;
  std::size_t end = 0;
};
Journal read_journal(std::string_view text);

/// 64 bits of FNV-1a as 16 hexadecimal digits.
std::string hash_text(std::string_view text);
/// The hash of the program or library that this code runs from: points of another build are
/// computed again.
const std::string& build_hash();

}  // namespace tilewright::harness
