#include "simulator/npu/findings.h"

#include <algorithm>

#include "core/base/format.h"

namespace tilewright::npu {
namespace {

constexpr std::size_t kUncounted = static_cast<std::size_t>(-1);

}  // namespace

std::string_view name_of(Fault f) {
  switch (f) {
    case Fault::unwritten_read:
      return "unwritten read";
    case Fault::race:
      return "race";
    case Fault::out_of_bounds:
      return "out of bounds";
    case Fault::alignment:
      return "alignment";
    case Fault::range:
      return "range";
    case Fault::arithmetic:
      return "arithmetic";
    case Fault::flag_overrun:
      return "flag overrun";
    case Fault::flag_left:
      return "flag left";
    case Fault::deadlock:
      return "deadlock";
    case Fault::unwritten_output:
      return "unwritten output";
    case Fault::limit:
      return "limit";
  }
  return "";
}

bool FindingCollector::is_new(Fault fault, int statement, int other, int object) {
  const auto [it, added] = index_.emplace(Key{fault, statement, other, object}, kUncounted);
  if (added) return found_.size() < static_cast<std::size_t>(most_);
  if (it->second != kUncounted) ++found_[it->second].count;
  return false;
}

std::string FindingCollector::statement_text(int statement) const {
  const Template* t = code_.of_statement(statement);
  const std::string_view pipe = name_of(t == nullptr ? Pipe::scalar : t->pipe);
  return formatted("statement {} ({}: {})", statement, pipe, code_.line(statement));
}

void FindingCollector::add(Fault fault, std::int64_t block, int statement, int other, int object,
                           std::int64_t offset, const std::string& what) {
  Finding f{.fault = fault,
            .block = block,
            .statement = statement,
            .other_statement = other,
            .offset = offset};
  f.text = formatted("{}: block {}", name_of(fault), block);
  if (statement > 0) f.text += ", " + statement_text(statement);
  f.text += " " + what;
  if (other > 0) f.text += ": " + statement_text(other);
  if (object >= 0) {
    const Object& o = code_.objects()[static_cast<std::size_t>(object)];
    f.object = o.name;
    // An offset beyond the object may be anything.
    f.address =
        o.address + std::clamp<std::int64_t>(offset, 0, o.bytes / o.element()) * o.element();
  }
  index_[Key{fault, statement, other, object}] = found_.size();
  found_.push_back(std::move(f));
}

void FindingCollector::refusal(const Refusal& r, std::int64_t block, int statement) {
  if (!is_new(r.fault, statement, 0, r.object)) return;
  add(r.fault, block, statement, 0, r.object, r.offset, r.problem);
}

void FindingCollector::conflict(const Conflict& c, const Actor& actor, int object) {
  using Kind = Conflict::Kind;
  const Object& o = code_.objects()[static_cast<std::size_t>(object)];
  const bool in_gm = o.memory == Memory::gm;
  const Fault fault = c.kind == Kind::unwritten ? Fault::unwritten_read : Fault::race;
  const int other = c.kind == Kind::unwritten ? 0 : c.other_statement;
  if (!is_new(fault, actor.statement, other, object)) return;
  const std::int64_t offset =
      std::max<std::int64_t>(0, c.byte - (in_gm ? 0 : o.address)) / o.element();
  const std::string place = formatted("{}[{}] (byte {} of {})", o.name, offset,
                                      in_gm ? o.address + c.byte : c.byte, name_of(o.memory));
  std::string what;
  if (c.kind == Kind::unwritten) {
    what = "reads " + place + ", which nothing has written yet";
  } else {
    const bool reads = c.kind == Kind::read_after_write, read = c.kind == Kind::write_after_read;
    what = formatted("{} {}, which another {}, and nothing orders the two",
                     reads ? "reads" : "writes", place, read ? "reads" : "writes");
    if (c.other_block != actor.block) {
      what +=
          c.other_block < 0 ? ", in another block" : ", in block " + std::to_string(c.other_block);
    }
  }
  add(fault, actor.block, actor.statement, other, object, offset, what);
}

}  // namespace tilewright::npu
