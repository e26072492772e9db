// Runs a program for the NPU: what it computes, in how many cycles, what it moves, where it is
// wrong. docs/npu.md has the rules of values, order and time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/machine/machine.h"
#include "core/npu/program.h"

namespace tilewright::npu {

/// What a program was caught at.
enum class Fault : std::uint8_t {
  unwritten_read,  ///< bytes that nothing has written
  race,            ///< two pipes or blocks, one of them writing, that nothing orders
  out_of_bounds,   ///< of a tensor or buffer
  alignment,
  range,             ///< a repeat, mask, stride, pitch, size or event that the instruction has not
  arithmetic,        ///< an integer expression without a value
  flag_overrun,      ///< a flag set again, and nothing orders that after a wait for it
  flag_left,         ///< a flag still set at the end
  deadlock,          ///< pipes that wait for what never comes
  unwritten_output,  ///< elements of an output that nothing wrote
  limit,             ///< more statements than EmulatorOptions allows
};
std::string_view name_of(Fault f);

struct Finding {
  Fault fault = Fault::race;
  std::int64_t block = 0;
  int statement = 0;         ///< as listing() numbers them; 0: none
  int other_statement = 0;   ///< the other one of a race, the setter of a flag; 0: none
  std::string object;        ///< tensor or buffer
  std::int64_t offset = 0;   ///< elements, of the first byte at fault
  std::int64_t address = 0;  ///< bytes, in the memory
  /// One line: "statement 12 (MTE1: copy ...) reads ...".
  std::string text;
  std::int64_t count = 1;  ///< times that these statements did so
};

/// Cycles of one pipe of one core. busy + waits + idle is the program's cycles.
struct PipeTimes {
  std::int64_t busy = 0;                       ///< executing
  std::int64_t instructions = 0;               ///< executed, flags and barriers not counted
  std::array<std::int64_t, kPipes> flag = {};  ///< waiting for a flag of that pipe
  std::int64_t barrier = 0;                    ///< waiting at a barrier
  std::int64_t empty = 0;                      ///< the scalar unit had issued nothing
  std::int64_t queue = 0;                      ///< scalar: another pipe's queue was full
  std::int64_t idle = 0;                       ///< after its last instruction of the program
  std::int64_t bandwidth = 0;                  ///< of busy: shared bandwidth was less than its own
  std::int64_t bank = 0;                       ///< of busy: bank conflicts
};

/// What copies moved from one memory to another of one tensor.
struct PathBytes {
  std::string tensor;
  Memory from = Memory::gm, to = Memory::gm;
  std::int64_t transfers = 0;
  std::int64_t elements = 0;  ///< rows x columns, summed
  Bytes read;                 ///< those, in the source's type
  Bytes written;              ///< in the destination's
  Bytes moved;                ///< what took time: padding, and rows rounded up to 32 bytes, too
  friend bool operator==(const PathBytes&, const PathBytes&) = default;
};

/// An instruction as the timeline shows it.
struct Span {
  int core = 0;
  Pipe pipe = Pipe::scalar;
  int statement = 0;
  std::int64_t block = 0;
  std::int64_t begin = 0, end = 0;  ///< cycles
  bool waiting = false;             ///< for a flag or at a barrier
};

/// Row-major elements of tensors in their own type and native byte order, by name.
using TensorData = std::map<std::string, std::vector<std::byte>>;

struct EmulatorOptions {
  bool check = true;      ///< hazards and unwritten reads; bounds and alignment always are
  bool timeline = false;  ///< keep Report::timeline
  int most_findings = 32;
  std::int64_t most_statements = 200'000'000;  ///< executed by all scalar units together
  /// Elements of outputs that may stay unwritten, by tensor: of longer rows, what nobody reads.
  std::map<std::string, std::int64_t> unwritten = {};
};

struct Report {
  Cycles cycles;                                     ///< of the cube's clock
  double seconds = 0;                                ///< simulated
  int cores = 0;                                     ///< that had a block
  std::vector<Finding> findings;                     ///< in the order in which they were found
  std::vector<std::array<PipeTimes, kPipes>> pipes;  ///< by core
  std::vector<PathBytes> paths;                      ///< by tensor's name, then path
  std::map<std::string, Bytes> dram;  ///< by tensor: lines that DRAM gave the L2, first reads only
  std::int64_t macs = 0;              ///< of whole fractals
  std::int64_t useful_macs = 0;       ///< m x n x k
  std::int64_t statements = 0;        ///< that scalar units executed
  std::vector<Span> timeline;

  bool ok() const { return findings.empty(); }
  /// macs over what the cubes of `cores` cores could have done in `cycles`.
  double cube_utilisation() const;
  PathBytes path(const std::string& tensor, Memory from, Memory to) const;  ///< or zeros
};

/// Multiply-accumulates that the cube does a cycle.
constexpr std::int64_t kMacsPerCycle = kFractal * kFractal * kFractal;
/// Instructions that a pipe's queue holds (assumed); the scalar unit waits when it is full.
constexpr int kQueue = 32;

/// Runs every block. `data` gives the inputs; outputs and scratch tensors given too hold that at
/// first. Afterwards it has every output. Faults are findings: an instruction that is out of
/// bounds, misaligned or out of range is left out, the others are executed as they are. Throws
/// InputError where check(program, machine) does, or an input is missing or of another size. Cost:
/// about 30 ps a multiply-accumulate with AVX-512, some 2 us an instruction.
Report emulate(const Program& program, const Machine& machine, TensorData& data,
               const EmulatorOptions& options = {});

/// The timeline in the Trace Event Format (chrome://tracing, Perfetto): a process a core, a thread
/// a pipe; 1 us stands for 1 cycle.
std::string trace_json(const Report& report, const Program& program);
/// The same as a picture (SVG), one row a pipe that did anything, of one core.
std::string timeline_svg(const Report& report, const Program& program, int core = 0);

}  // namespace tilewright::npu
