#include "harness/schedule_json.h"

#include <algorithm>

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

std::string_view role_name(BufferRole role) {
  switch (role) {
    case BufferRole::input:
      return "input";
    case BufferRole::output:
      return "output";
    case BufferRole::intermediate:
      return "intermediate";
  }
  return "";
}

/// One kernel, walked along every loop's first iteration.
class KernelWriter {
 public:
  KernelWriter(const Schedule& s, const ScheduledKernel& k) : s_(s), k_(k) {
    for (const Buffer& b : k.buffers) buffers_.push_back(buffer(b));
  }

  ordered_json write() {
    ordered_json json = {
        {"name", k_.name}, {"level", s_.machine->level(k_.level).name}, {"blocks", k_.blocks}};
    json["nodes"] = node(NodeId(0), whole_ranges(s_, k_));
    json["buffers"] = buffers_;
    return json;
  }

 private:
  std::string tensor_name(TensorId t) const { return s_.workload->tensor(t).name; }

  ordered_json buffer(const Buffer& b) const {
    ordered_json json = {{"tensor", tensor_name(b.tensor)},
                         {"level", s_.machine->level(b.level).name},
                         {"role", role_name(b.role)},
                         {"copies", b.copies},
                         {"tile", nullptr},
                         {"bytes", nullptr},
                         {"fixed_at", nullptr}};
    if (b.fixed_at.valid()) {
      const ScheduleNode& at = k_.node(b.fixed_at);
      json["fixed_at"] = at.kind == NodeKind::loop ? s_.workload->loop(at.loop).name : "";
      // Which of the loops of this name, as they are written.
      if (at.kind == NodeKind::loop)
        json["fixed_at_loop"] = std::count_if(
            k_.nodes.begin(), k_.nodes.begin() + b.fixed_at.value,
            [&at](const ScheduleNode& n) { return n.kind == NodeKind::loop && n.loop == at.loop; });
    }
    return json;
  }

  void tile(ordered_json& json, TensorId tensor, const Box& box) const {
    json["tile"] = ordered_json::array();
    std::int64_t elements = 1;
    for (int d = 0; d < box.rank(); ++d) {
      json["tile"].push_back(box[d].size());
      elements *= box[d].size();
    }
    json["bytes"] = elements * size_of(s_.workload->tensor(tensor).dtype);
  }

  /// The first tile that a buffer holds.
  void fill(BufferId id, const Box& box) {
    ordered_json& json = buffers_[id.index()];
    if (!json["tile"].is_null()) return;
    tile(json, k_.buffer(id).tensor, box);
    json["bytes"] = json["bytes"].get<std::int64_t>() * k_.buffer(id).copies;
  }

  void enter(const ScheduleNode& n, Ranges& r) {
    for (const Inference& i : n.infer) infer(s_, k_, i, r);
    for (const BufferId b : n.fixes) fill(b, tile_of(s_, k_, k_.buffer(b), r));
  }

  ordered_json loop(NodeId id, const ScheduleNode& n, Ranges& r) {
    const Ranges around = r;
    ordered_json json = {{"kind", "loop"},
                         {"name", s_.workload->loop(n.loop).name},
                         {"step", n.step},
                         {"trips", trips(k_, id, around)},
                         {"binding", tilewright::name_of(n.binding)}};
    cut(k_, id, 0, around, r);
    enter(n, r);
    return json;
  }

  ordered_json moved(NodeId id, const ScheduleNode& n, const Ranges& r) {
    const bool load = n.kind == NodeKind::load;
    ordered_json json = {{"kind", load                       ? "load"
                                  : n.kind == NodeKind::drop ? "drop"
                                                             : "store"},
                         {"name", tensor_name(n.tensor)},
                         {"level", s_.machine->level(n.level).name}};
    if (!load) return json;
    const Box box = load_box(s_, k_, id, r);
    tile(json, n.tensor, box);
    fill(n.buffer, box);
    return json;
  }

  ordered_json computed(const ScheduleNode& n, const Ranges& r) {
    for (const OutputUse& w : n.writes) fill(w.buffer, write_box(s_, k_, n.op, w.output, r));
    return {{"kind", "compute"}, {"name", s_.workload->op(n.op).name}};
  }

  ordered_json node(NodeId id, Ranges r) {
    const ScheduleNode& n = k_.node(id);
    ordered_json json;
    switch (n.kind) {
      case NodeKind::loop:
        json = loop(id, n, r);
        break;
      case NodeKind::load:
      case NodeKind::store:
      case NodeKind::drop:
        json = moved(id, n, r);
        break;
      case NodeKind::compute:
        json = computed(n, r);
        break;
      case NodeKind::sync:
        json = {{"kind", "sync"}, {"name", barrier_name(n.scope)}};
        break;
      case NodeKind::pack:
        json = {{"kind", "pack"}, {"name", ""}};
        break;
      case NodeKind::sequence:
        json = {{"kind", "sequence"}, {"name", ""}};
        enter(n, r);
        break;
    }
    json["children"] = ordered_json::array();
    for (const NodeId child : n.children) json["children"].push_back(node(child, r));
    return json;
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  ordered_json buffers_ = ordered_json::array();
};

}  // namespace

ordered_json kernels_json(const Schedule& s) {
  ordered_json kernels = ordered_json::array();
  for (const ScheduledKernel& k : s.kernels) kernels.push_back(KernelWriter(s, k).write());
  return kernels;
}

}  // namespace tilewright::harness
