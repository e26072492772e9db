// The format "TWTRACE1". All numbers are LEB128 (seven bits a byte, lowest first, the high bit set
// on all but the last); signed ones are zigzag (0, -1, 1, -2, ... as 0, 1, 2, 3, ...).
//
//   header   the eight bytes TWTRACE1; how many tensors; of each, its name's length and bytes
//   group    1 to 8: how many accesses a round has; how many rounds; then of each access
//              kind      bit 0: write; bit 1: other bytes than the tensor's last access in the
//              file;
//                        bits 2 and up: tensor
//              bytes     where bit 1 says so (a tensor's first access: other than 4)
//              address   signed, less the address where the tensor's last access in the file was
//              stride    signed, where there is more than one round
//            "where the last access was": its address in the group's last round
//   end      0, then the accesses in all groups
#include "simulator/trace_binary.h"

#include <deque>
#include <istream>
#include <limits>
#include <ostream>

#include "core/base/error.h"

namespace tilewright {

namespace {

constexpr std::size_t kMostRound = 8;
constexpr std::int64_t kUsualBytes = 4;
constexpr std::size_t kMostTensors = 65535, kMostName = 255;

/// What is known of a tensor's last access.
struct Last {
  std::int64_t address = 0, bytes = kUsualBytes;
};

class Reader {
 public:
  Reader(std::istream& in, std::string_view where) : in_(*in.rdbuf()), where_(where) {}

  [[noreturn]] void fail(const char* problem) const {
    throw InputError({.where = std::string(where_),
                      .field = "trace",
                      .value = "byte " + std::to_string(position_),
                      .problem = problem,
                      .accepted = "a whole trace as --save-trace writes it"});
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const int c = byte();
      if (shift > 63 || (shift == 63 && c > 1)) fail("is part of too large a number");
      value |= static_cast<std::uint64_t>(c & 0x7F) << shift;
      if (c < 0x80) return value;
    }
  }
  std::int64_t signed_number() {
    const std::uint64_t z = number();
    return static_cast<std::int64_t>(z >> 1) ^ -static_cast<std::int64_t>(z & 1);
  }
  std::int64_t number_to(std::int64_t most, const char* problem) {
    const std::uint64_t n = number();
    if (n > static_cast<std::uint64_t>(most)) fail(problem);
    return static_cast<std::int64_t>(n);
  }
  std::string text(std::size_t length) {
    std::string s;
    while (s.size() < length) s += static_cast<char>(byte());
    return s;
  }
  bool at_end() { return in_.sgetc() == std::char_traits<char>::eof(); }

 private:
  int byte() {
    const int c = in_.sbumpc();
    if (c == std::char_traits<char>::eof()) fail("is past the end: the trace is cut off");
    ++position_;
    return c;
  }

  std::streambuf& in_;
  std::string_view where_;
  std::int64_t position_ = 0;
};

std::vector<std::string> header(Reader& r) {
  if (r.text(kTraceMagic.size()) != kTraceMagic) r.fail("is not of this format");
  std::vector<std::string> names(static_cast<std::size_t>(
      r.number_to(static_cast<std::int64_t>(kMostTensors), "counts too many tensors")));
  for (std::string& name : names)
    name = r.text(static_cast<std::size_t>(
        r.number_to(static_cast<std::int64_t>(kMostName), "begins too long a name")));
  if (names.empty()) r.fail("counts no tensors");
  return names;
}

std::int64_t checked(const Reader& r, std::int64_t address, std::int64_t stride,
                     std::int64_t rounds) {
  std::int64_t far = 0;
  if (__builtin_mul_overflow(stride, rounds - 1, &far) ||
      __builtin_add_overflow(address, far, &far) || far < 0 || far > kMostAddress)
    r.fail("leads to an address out of range");
  return far;
}

}  // namespace

std::vector<std::string> read_binary_header(std::istream& in, std::string_view where) {
  Reader r(in, where);
  return header(r);
}

void read_binary(std::istream& in, std::string_view where, TraceSummary& summary,
                 const TraceSink& sink) {
  Reader r(in, where);
  summary.tensors = header(r);
  std::vector<Last> last(summary.tensors.size());
  std::vector<Stream> round;
  std::int64_t accesses = 0;
  while (const auto n = static_cast<std::size_t>(
             r.number_to(static_cast<std::int64_t>(kMostRound), "begins too long a round"))) {
    const std::int64_t rounds =
        r.number_to(std::numeric_limits<std::int64_t>::max() / 16, "counts too many rounds");
    if (rounds < 1) r.fail("counts no rounds");
    round.assign(n, {});
    for (Stream& s : round) {
      const std::uint64_t kind = r.number();
      if (kind >> 2 >= last.size()) r.fail("names a tensor that is not there");
      Last& known = last[static_cast<std::size_t>(kind >> 2)];
      if ((kind & 2) != 0) known.bytes = r.number_to(INT32_MAX, "is too many bytes");
      if (known.bytes < 1) r.fail("is not a number of bytes");
      std::int64_t address = 0;
      if (__builtin_add_overflow(known.address, r.signed_number(), &address) || address < 0 ||
          address > kMostAddress)
        r.fail("leads to an address out of range");
      s = {.address = address,
           .stride = rounds > 1 ? r.signed_number() : 0,
           .bytes = known.bytes,
           .write = (kind & 1) != 0,
           .tensor = static_cast<int>(kind >> 2)};
      known.address = checked(r, address, s.stride, rounds);
      (s.write ? summary.writes : summary.reads) += rounds;
    }
    accesses += static_cast<std::int64_t>(n) * rounds;
    sink(round, rounds);
  }
  if (r.number() != static_cast<std::uint64_t>(accesses)) r.fail("counts other accesses than came");
  if (!r.at_end()) r.fail("is followed by more");
}

// Writing -----------------------------------------------------------------------------------------

class TraceWriter::Impl {
 public:
  Impl(std::ostream& out, const std::vector<std::string>& tensors)
      : out_(out), last_(tensors.size()) {
    const auto bad = [](const std::string& value, const char* problem, const char* accepted) {
      throw InputError(
          {.field = "trace: tensors", .value = value, .problem = problem, .accepted = accepted});
    };
    if (tensors.empty() || tensors.size() > kMostTensors)
      bad(std::to_string(tensors.size()), "cannot be named", "1 to 65535");
    out_.write(kTraceMagic.data(), static_cast<std::streamsize>(kTraceMagic.size()));
    number(tensors.size());
    for (const std::string& name : tensors) {
      if (name.size() > kMostName) bad(name.substr(0, 40), "is too long a name", "255 bytes");
      number(name.size());
      out_ << name;
    }
  }

  void access(const Stream& a) {
    TW_CHECK(a.bytes > 0 && a.bytes <= INT32_MAX && a.address >= 0 && a.tensor >= 0 &&
                 static_cast<std::size_t>(a.tensor) < last_.size(),
             "an access that a trace cannot hold");
    ++accesses_;
    if (!round_.empty()) {
      const Stream& next = round_[at_];
      if (same(next, a) && next.address + rounds_ * next.stride == a.address) {
        if (++at_ == round_.size()) at_ = 0, ++rounds_;
        return;
      }
      close();
    }
    pending_.push_back(a);
    find_round();
    while (pending_.size() > 2 * kMostRound) {
      group({&pending_.front(), 1}, 1);
      pending_.pop_front();
    }
  }

  void finish() {
    close();
    for (const Stream& a : pending_) group({&a, 1}, 1);
    pending_.clear();
    number(0);
    number(static_cast<std::uint64_t>(accesses_));
  }

 private:
  static bool same(const Stream& a, const Stream& b) {
    return a.bytes == b.bytes && a.write == b.write && a.tensor == b.tensor;
  }

  /// The last accesses twice the same but for addresses: the shortest such round begins a group.
  void find_round() {
    for (std::size_t n = 1; n <= kMostRound && 2 * n <= pending_.size(); ++n) {
      const std::size_t second = pending_.size() - n, first = second - n;
      bool repeats = true;
      for (std::size_t i = 0; i < n && repeats; ++i)
        repeats = same(pending_[first + i], pending_[second + i]);
      if (!repeats) continue;
      for (std::size_t i = 0; i < first; ++i) group({&pending_[i], 1}, 1);
      for (std::size_t i = 0; i < n; ++i) {
        Stream s = pending_[first + i];
        s.stride = pending_[second + i].address - s.address;
        round_.push_back(s);
      }
      pending_.clear();
      rounds_ = 2;
      at_ = 0;
      return;
    }
  }

  /// Ends the round that goes on: whole rounds are a group, what of one has come is pending.
  void close() {
    if (round_.empty()) return;
    group(round_, rounds_);
    for (std::size_t i = 0; i < at_; ++i) {
      Stream s = round_[i];
      s.address += rounds_ * s.stride;
      s.stride = 0;
      pending_.push_back(s);
    }
    round_.clear();
  }

  void group(std::span<const Stream> round, std::int64_t rounds) {
    number(round.size());
    number(static_cast<std::uint64_t>(rounds));
    for (const Stream& s : round) {
      Last& known = last_[static_cast<std::size_t>(s.tensor)];
      const bool other = known.bytes != s.bytes;
      number(static_cast<std::uint64_t>(s.tensor) << 2 | (other ? 2u : 0u) | (s.write ? 1u : 0u));
      if (other) number(static_cast<std::uint64_t>(s.bytes));
      signed_number(s.address - known.address);
      if (rounds > 1) signed_number(s.stride);
      known = {.address = s.address + (rounds - 1) * s.stride, .bytes = s.bytes};
    }
  }

  void number(std::uint64_t n) {
    for (; n >= 0x80; n >>= 7) out_.put(static_cast<char>(n | 0x80));
    out_.put(static_cast<char>(n));
  }
  void signed_number(std::int64_t n) {
    number(static_cast<std::uint64_t>(n) << 1 ^ static_cast<std::uint64_t>(n >> 63));
  }

  std::ostream& out_;
  std::vector<Last> last_;
  std::deque<Stream> pending_;  // not written yet, in no round
  std::vector<Stream> round_;   // of the group that goes on, if any, as in its first round
  std::int64_t rounds_ = 0;     // whole ones that have come
  std::size_t at_ = 0;          // accesses of the next
  std::int64_t accesses_ = 0;
};

TraceWriter::TraceWriter(std::ostream& out, const std::vector<std::string>& tensors)
    : impl_(std::make_unique<Impl>(out, tensors)), tensors_(static_cast<int>(tensors.size())) {}
TraceWriter::~TraceWriter() = default;

void TraceWriter::access(std::int64_t address, std::int64_t bytes, bool write, int tensor) {
  impl_->access({.address = address, .bytes = bytes, .write = write, .tensor = tensor});
}

void TraceWriter::streams(std::span<const Stream> streams, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    for (const Stream& s : streams) access(s.address + i * s.stride, s.bytes, s.write, s.tensor);
}

void TraceWriter::finish() { impl_->finish(); }

}  // namespace tilewright
