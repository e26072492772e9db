// Recorded accesses: reading and writing them in three formats, and walking them through caches.
//
//   din      Dinero's text: a label and a hexadecimal address a line, 0 read, 1 write, 2
//   instruction
//            fetch; every access has 4 bytes. Further words of a line are ignored.
//   lackey   what `valgrind --tool=lackey --trace-mem=yes` prints: I, L (load), S (store) or M
//   (both)
//            and address,size in hexadecimal and decimal. Lines of Valgrind's own (==...) are
//            ignored.
//   tilewright   binary, about a byte for eight accesses of a loop nest; see trace_binary.cpp.
//
// Instruction fetches are counted, and left out unless their own sink is given: caches here are of
// data.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/cache.h"
#include "simulator/stack_distance.h"

namespace tilewright {

enum class TraceFormat : std::uint8_t { din, lackey, tilewright };
std::string_view name_of(TraceFormat f);
/// By what the first bytes look like. Throws InputError where they are none of the three.
TraceFormat trace_format(std::string_view beginning, std::string_view where);

/// What a reader finds: `count` rounds of `streams` in order, the whole of an access or of a loop.
using TraceSink = std::function<void(std::span<const Stream> streams, std::int64_t count)>;

/// An instruction that was fetched.
using FetchSink = std::function<void(std::int64_t address, std::int64_t bytes)>;

struct TraceSummary {
  TraceFormat format = TraceFormat::tilewright;
  std::vector<std::string> tensors;  ///< one, "trace", but where the format names them
  std::int64_t reads = 0, writes = 0;
  std::int64_t fetches = 0;  ///< instructions', left out
};

/// Tensors' names, without reading further: one, "trace", for din and lackey.
std::vector<std::string> trace_tensors(std::istream& in, std::string_view where);
/// Reads a trace of any format. A modification is a read and a write. Throws InputError with the
/// line (text) or the position (binary) at fault. Cost: 50 to 100 ns a line of text; of our own
/// format, what the sink costs.
TraceSummary read_trace(std::istream& in, std::string_view where, const TraceSink& sink,
                        const FetchSink& fetch = {});

/// Writes a trace, finding loops on the way: rounds of up to eight accesses that repeat with a
/// stride each. What is read back is the same accesses in the same order.
class TraceWriter {
 public:
  /// Throws InputError for names that are longer than 255 bytes or more than 65535.
  TraceWriter(std::ostream& out, const std::vector<std::string>& tensors);
  ~TraceWriter();
  /// bytes 1 to 2^31 - 1; tensor one of those given.
  void access(std::int64_t address, std::int64_t bytes, bool write, int tensor = 0);
  void streams(std::span<const Stream> streams, std::int64_t count);
  int tensors() const { return tensors_; }
  /// Writes what is pending and the end mark, without which a trace is refused as cut off.
  /// Whoever owns the stream asks it whether all could be written.
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  int tensors_;
};

}  // namespace tilewright
