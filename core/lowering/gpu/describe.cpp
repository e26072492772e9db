// A ThreadProgram for people.
#include "core/lowering/gpu/thread_program.h"
#include "core/lowering/gpu/unrolled.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

class Describer {
 public:
  explicit Describer(const ThreadProgram& p) : p_(p) {}

  std::string text() {
    line(p_.kernel->name + ": " + count(p_.kernel->blocks, "block") + " of " +
         count(p_.warps, "warp") + ", " + std::to_string(p_.shared_bytes) +
         " bytes of shared memory");
    line("values");
    ++depth_;
    for (const Value& v : p_.values) line(value_text(v));
    --depth_;
    line("steps");
    ++depth_;
    steps(p_.steps);
    return std::move(text_);
  }

 private:
  void line(const std::string& text) {
    text_.append(2 * depth_, ' ');
    text_ += text + "\n";
  }
  static std::string count(std::int64_t n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  }
  std::string tensor(TensorId t) const { return p_.workload->tensor(t).name; }
  std::string name(int value) const { return tensor(p_.value(value).tensor); }

  std::string array(const std::vector<int>& dims) const {
    std::string text;
    for (int id : dims)
      text += "[" + p_.index(id).text + ":" + std::to_string(p_.index(id).count) + "]";
    return text;
  }

  std::string value_text(const Value& v) const {
    std::string text = tensor(v.tensor) + ": ";
    switch (v.storage) {
      case Storage::registers:
        text += "registers" + array(v.dims);
        break;
      case Storage::shared:
        text += "shared memory at byte " + std::to_string(v.offset) + ", " +
                count(v.elements, "element") + " an instance";
        break;
      case Storage::direct:
        text += v.loaded() ? "loaded where it is used" : "stored where it is computed";
        break;
    }
    if (!v.key.empty()) {
      text += ", at (";
      for (std::size_t d = 0; d < v.key.size(); ++d)
        text += (d == 0 ? "" : ", ") + p_.variables.text(v.key[d]);
      text += ")";
    }
    return text + (v.reason.empty() || v.storage == Storage::direct ? "" : "; " + v.reason);
  }

  std::string where(const std::vector<Linear>& inside) const {
    std::string text;
    for (const Linear& x : inside)
      text += (text.empty() ? " where " : ", ") + p_.variables.text(x) + " > 0";
    return text;
  }
  std::string by(const Copies& c) const {
    std::string text;
    if (c.lane) text += " by lane " + p_.variables.text(*c.lane);
    if (c.warp) text += (text.empty() ? " by warp " : ", warp ") + p_.variables.text(*c.warp);
    return text;
  }
  std::string moved(const Step& s) const {
    return array(s.dims) +
           (s.strip.width > 1 ? ", " + count(s.strip.width, "element") + " at once" : "") +
           by(s.copies) + where(s.inside);
  }

  std::string read_text(const Read& r) const {
    const std::string what = tensor(r.tensor);
    switch (r.from) {
      case Read::From::registers:
        return what;
      case Read::From::held:
        return what + " held since before the loop";
      case Read::From::shared:
        return what + " from shared memory";
      case Read::From::home:
        return what + " from home";
      case Read::From::gather:
        return what + " looked up at home" + by(r.gather.copies);
      case Read::From::run:
        return what + " looked up at home, several at once";
    }
    return what;
  }

  std::string compute_text(const Step& s) const {
    std::string text = "C." + to_text(*p_.workload, p_.kernel->node(s.node).op);
    if (!s.dims.empty()) text += "; for " + array(s.dims);
    for (std::size_t i = 0; i < s.reads.size(); ++i)
      text += (i == 0 ? "; reads " : ", ") + read_text(s.reads[i]);
    for (const Write& w : s.writes) {
      const Value& v = p_.value(w.value);
      text += std::string(w.sum ? "; adds to " : "; makes ") + tensor(v.tensor);
      if (!w.sum && v.storage == Storage::shared) text += " in shared memory";
      if (!w.sum && (v.storage == Storage::direct || w.leaves)) text += " at home";
      text += by(w.copies) + where(w.inside);
    }
    return text;
  }

  std::string units(const std::vector<int>& ids) const {
    std::string text;
    for (int id : ids) {
      const ProgramIndex& i = p_.index(id);
      const bool lanes = i.unit != Binding::warp;
      const std::int64_t n = i.unit == Binding::thread ? kLanes : i.count;
      text += (text.empty() ? "" : " and ") + count(n, lanes ? "lane" : "warp") +
              (i.stride > 1 ? ", " + std::to_string(i.stride) + " apart" : "");
    }
    return text;
  }

  void body(const std::vector<Step>& all) {
    ++depth_;
    steps(all);
    --depth_;
  }

  void steps(const std::vector<Step>& all) {
    for (const Step& s : all) step(s);
  }

  void step(const Step& s) {
    using Kind = Step::Kind;
    switch (s.kind) {
      case Kind::loop:
        line("loop " + p_.index(s.index).text + ", " + count(p_.index(s.index).count, "turn") +
             (p_.index(s.index).unrolled ? ", unrolled"
              : s.few
                  ? ", " + std::to_string(turns_unrolled(p_.index(s.index).count)) + " at a time"
                  : ""));
        return body(s.body);
      case Kind::blocks:
        line("blocks" + (s.index < 0 ? "" : " " + p_.index(s.index).text) + ", " +
             std::to_string(s.count) + (s.idle ? " of those here" : ""));
        return body(s.body);
      case Kind::parts:
        return steps(s.body);
      case Kind::part:
        line("part of " + count(s.count, "block") + " from block " + std::to_string(s.first));
        return body(s.body);
      case Kind::declare:
        return;  // the list of values has it
      case Kind::hold:
        return line("hold " + tensor(s.read.tensor) + array(s.dims) +
                    " from shared memory for the loop");
      case Kind::load:
        return line("L." + name(s.values.front()) + moved(s));
      case Kind::spread:
        return line("shuffle " + name(s.values.front()) + " from lane " +
                    p_.variables.text(*s.copies.lane));
      case Kind::stage:
        return line("L." + name(s.values.front()) + array(s.elements) + " to shared memory, " +
                    count(s.threads, "thread") + " together" + where(s.inside));
      case Kind::put:
        return;  // its stage has it
      case Kind::start:
        return line("start sum " + name(s.values.front()) + array(s.dims));
      case Kind::compute:
        return line(compute_text(s));
      case Kind::lanes:
        return line("join " + name(s.values.front()) + array(s.dims) + " over " + units(s.units));
      case Kind::exchange: {
        std::string text;
        for (const Step::Joined& j : s.joined)
          text += (text.empty() ? "" : "; ") + name(j.value) + array(j.dims) + " over " +
                  (j.units.empty() ? count(p_.warps, "warp") : units(j.units));
        return line("join " + text + ", through shared memory, a barrier of the block between");
      }
      case Kind::keep:
        return line("keep " + name(s.values.front()) + array(s.dims) + " in shared memory" +
                    by(s.copies) + where(s.inside));
      case Kind::store:
        return line("S." + name(s.values.front()) + (s.atomic ? "!atomic" : "") + moved(s) +
                    (s.shared_out ? ", each warp a part" : ""));
      case Kind::barrier: {
        std::string text;
        for (int v : s.values) text += (text.empty() ? " for " : ", ") + name(v);
        if (s.all_blocks) return line("barrier of all blocks");
        if (s.launches)
          return line(std::string("wait for the end of the launch before") +
                      (s.next ? "; the next may begin" : ""));
        return line(std::string("barrier of the ") + (s.warp ? "warp" : "block") + text +
                    (s.reused ? ", whose place is written again" : ""));
      }
    }
  }

  const ThreadProgram& p_;
  std::string text_;
  std::size_t depth_ = 0;
};

}  // namespace

std::string describe(const ThreadProgram& p) { return Describer(p).text(); }

}  // namespace tilewright::lowering
