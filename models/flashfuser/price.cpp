// What a candidate moves at each level, where its intermediates are held, and the slowest level.
#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "models/flashfuser/flashfuser.h"

namespace tilewright::flashfuser {
namespace {

double real(std::int64_t x) { return static_cast<double>(x); }

class Pricing {
 public:
  Pricing(const Chain& c, const Device& d, const Options& o, const Candidate& one)
      : c_(c), d_(d), o_(o), one_(one) {}

  std::optional<Price> run(bool volumes) {
    if (!set_shape() || !place()) return std::nullopt;
    add_moved(volumes);
    add_spills(volumes);
    add_exchanges();
    add_operands();
    set_seconds();
    return std::move(p_);
  }

 private:
  bool set_shape() {
    position_.fill(-1);
    for (std::size_t i = 0; i < one_.schedule.size(); ++i)
      position_[one_.schedule[i]] = static_cast<int>(i);
    if (!reduces_first(one_.schedule)) return false;
    const Cluster& cls = one_.cluster;
    if (cls[kN] % cls[kK] != 0 || cls[kJ] % shuffle_group(cls) != 0) return false;
    for (Role r : {kM, kJ, kK, kN}) {
      ext_[r] = c_.extent(r);
      const std::int64_t tile = one_.tiles[r], wide = tile * cls[r];
      if (tile * (cls[r] - 1) >= ext_[r]) return false;  // a block without work
      const std::int64_t times = ceil_div(ext_[r], wide);
      trips_[r] = position_[r] >= 0 ? times : 1;
      grid_[r] = position_[r] >= 0 ? 1 : times;
    }
    if (grid_[kK] > 1) return false;                       // rule 3: a cluster spans the reduction
    if (grid_[kJ] > 1 && !c_.after.empty()) return false;  // what follows needs whole sums
    p_.blocks = real(c_.batches());
    for (Role r : {kM, kJ, kK, kN}) p_.blocks *= real(grid_[r]);
    p_.blocks *= real(cls[kM] * cls[kJ] * cls[kK]);
    size_ = real(size_of(c_.workload->tensor(c_.joint).dtype));
    sum_ = std::max(4.0, real(size_of(c_.workload->tensor(c_.partial).dtype)));
    return true;
  }

  double tile(Role r) const { return real(std::min(one_.tiles[r], ext_[r])); }
  /// Trips of those loops inside `of` that index a tensor of `roles`.
  double inside(Role of, unsigned roles) const {
    double all = 1;
    if (position_[of] < 0 || trips_[of] == 1) return all;
    for (Role r : {kM, kJ, kN})
      if ((roles >> r & 1) != 0 && position_[r] > position_[of]) all *= real(trips_[r]);
    return all;
  }

  /// Greedy: the joint tensor, then the partial sums, each whole at the nearest level with room.
  bool place() {
    const Cluster& cls = one_.cluster;
    const double shuffle = real(shuffle_group(cls)), add = real(reduce_group(cls));
    const double first =
        tile(kM) * tile(kJ) * sum_ * real(static_cast<std::int64_t>(c_.first.size()));
    const double second = tile(kM) * tile(kN) * sum_;
    double registers = real(d_.registers.value) * o_.registers;
    double room = real(d_.shared_capacity.value) - staged();
    if (registers > 0) {
      registers -= first + second;
      p_.registers_used = first + second;
      if (registers < 0) return false;
    } else {
      room -= first + second;
      p_.shared_used += first + second;
    }
    if (room < 0) return false;
    p_.shared_used += staged();
    const bool group = cls[kM] * cls[kJ] * cls[kK] > 1;
    double held = tile(kM) * tile(kJ) * size_ * inside(kN, 1U << kM | 1U << kJ);
    // Without registers the product's sums are themselves the tile that is read.
    const bool same =
        d_.registers.value == 0 && c_.between.empty() && inside(kN, 1U << kM | 1U << kJ) == 1;
    if (same) held = 0;
    p_.joint =
        take(held * shuffle, shuffle == 1 ? held * shuffle : INFINITY,
             group ? held + tile(kM) * tile(kJ) * size_ * shuffle : INFINITY, registers, room);
    if (p_.joint == Place::global) {  // its tile comes back through shared memory
      if (tile(kM) * tile(kJ) * size_ * shuffle > room) return false;
    }
    p_.joint_bytes = held * (p_.joint == Place::dsm ? 1 : shuffle);
    const double strip = second * inside(kJ, 1U << kM | 1U << kN);
    if (strip == second) {
      p_.partial = Place::registers;  // the accumulator itself
      p_.partial_bytes = second;
      return true;
    }
    p_.partial = take(strip, strip, add > 1 ? strip / add : INFINITY, registers, room);
    p_.partial_bytes = p_.partial == Place::dsm ? strip / add : strip;
    return true;
  }

  /// `whole`: bytes in shared memory; `near`: in registers; `spread`: a block's share in DSM.
  Place take(double whole, double near, double spread, double& registers, double& room) {
    if (near <= registers) {
      registers -= near;
      p_.registers_used += near;
      return Place::registers;
    }
    const bool fits = whole <= room;
    if (!fits && spread > room) return Place::global;
    room -= fits ? whole : spread;
    p_.shared_used += fits ? whole : spread;
    return fits ? Place::shared : Place::dsm;
  }

  /// Tiles that wait in shared memory: of either product, whichever has more.
  double staged() const {
    double phase[2] = {0, 0};
    for (const Moved& t : c_.moved)
      if (t.staged) phase[t.second ? 1 : 0] += tile_bytes(t);
    return std::max(phase[0], phase[1]);
  }
  /// Of a shuffled join, a tile at a time.
  double tile_bytes(const Moved& t) const {
    double all = real(size_of(c_.workload->tensor(t.tensor).dtype));
    for (Role r : {kM, kJ, kK, kN})
      if ((t.roles >> r & 1) != 0) all *= tile(r);
    return all;
  }

  /// Chimera's DM of a block, times the blocks: a tensor comes again for each iteration of a loop
  /// that does not index it and has one inside that does, and for every block along a dimension
  /// that does not index it.
  double times(unsigned roles, bool second, bool gathered) const {
    double all = 1;
    for (Role r : {kM, kJ, kK, kN}) {
      if ((roles >> r & 1) != 0) continue;
      if (gathered) all *= blocks_along(r, second);
      const bool has = r == kM || r == kJ || r == (second ? kN : kK);
      if (!has || position_[r] < 0) continue;
      for (Role x : {kM, kJ, kK, kN}) {
        const bool inner = (roles >> x & 1) != 0 && position_[x] > position_[r] && trips_[x] > 1 &&
                           x != (second ? kK : kN);
        if (!inner) continue;
        all *= real(trips_[r]);
        break;
      }
    }
    return all;
  }
  double blocks_along(Role r, bool second) const {
    const Cluster& cls = one_.cluster;
    if (r == (second ? kK : kN)) return real(grid_[r]);
    if (second && r == kJ) return real(grid_[r] * reduce_group(cls));
    return real(grid_[r] * cls[r]);
  }

  void add(bool volumes, TensorId t, double read, double written) {
    p_.global += read + written;
    if (!volumes) return;
    const auto same = [t](const Volume& v) { return v.tensor == t; };
    auto at = std::ranges::find_if(p_.volumes, same);
    if (at == p_.volumes.end()) at = p_.volumes.insert(at, Volume{t});
    at->read += read;
    at->written += written;
  }

  double bytes(TensorId t) const { return real(c_.workload->tensor(t).bytes().value); }

  void add_moved(bool volumes) {
    for (const Moved& t : c_.moved) {
      if (!t.written) {
        add(volumes, t.tensor, bytes(t.tensor) * times(t.roles, t.second, true), 0);
        continue;
      }
      if (t.tensor != c_.partial) {
        add(volumes, t.tensor, 0, bytes(t.tensor));
        continue;
      }
      // Clusters along j each add their sums to memory, which is zeroed first.
      const double adds = real(grid_[kJ]);
      add(volumes, t.tensor, 0, bytes(t.tensor) * (adds > 1 ? adds + 1 : 1));
    }
  }

  void add_spills(bool volumes) {
    if (p_.joint == Place::global)
      add(volumes, c_.joint, bytes(c_.joint) * real(one_.cluster[kN] * trips_[kN]),
          bytes(c_.joint));
    if (p_.partial != Place::global) return;
    const bool leaves = c_.workload->is_output(c_.partial);
    const double again = real(trips_[kJ] - 1), writes = real(trips_[kJ]);
    add(volumes, c_.partial, bytes(c_.partial) * (leaves ? again : writes),
        bytes(c_.partial) * (leaves ? again : writes));
  }

  void add_exchanges() {
    const Cluster& cls = one_.cluster;
    const double all = real(c_.batches());
    const double joint = all * real(ext_[kM]) * real(ext_[kJ]) * real(grid_[kN]);
    const double partial = all * real(ext_[kM]) * real(ext_[kN]) * real(grid_[kJ]);
    const double firsts = real(static_cast<std::int64_t>(c_.first.size()));
    p_.exchange = joint * firsts * sum_ * real(cls[kK] * (cls[kK] - 1));
    p_.shuffle = joint * size_ * real(cls[kK] * (shuffle_group(cls) - 1)) *
                 (p_.joint == Place::dsm ? real(trips_[kN]) : 1);
    p_.scatter = partial * sum_ * real(reduce_group(cls) - 1) *
                 (p_.partial == Place::dsm || p_.partial == Place::global ? real(trips_[kJ]) : 1);
  }

  /// Each product reads both operands' tiles for every tile that it makes.
  void add_operands() {
    const double all = real(c_.batches()) * real(ext_[kM]) * real(ext_[kJ]) * size_;
    const double firsts = real(static_cast<std::int64_t>(c_.first.size()));
    p_.shared = all * real(ext_[kK]) * real(grid_[kN]) * firsts * (1 / tile(kJ) + 1 / tile(kM));
    const double joint = p_.joint == Place::registers ? 0 : 1 / tile(kN);
    p_.shared += all * real(ext_[kN]) * (joint + 1 / tile(kM));
  }

  void set_seconds() {
    const double busy = o_.busy ? std::min(1.0, p_.blocks / real(d_.units)) : 1;
    p_.global_s = p_.global / d_.global;
    if (d_.into_shared > 0)
      p_.global_s = std::max(p_.global_s, p_.global / (d_.into_shared * real(d_.units) * busy));
    if (d_.dsm > 0) p_.dsm_s = p_.dsm_bytes() / (d_.dsm * busy);
    if (d_.shared > 0) p_.shared_s = p_.shared / (d_.shared * busy);
    p_.seconds = std::max({p_.global_s, p_.dsm_s, p_.shared_s});
  }

  const Chain& c_;
  const Device& d_;
  const Options& o_;
  const Candidate& one_;
  ByRole<int> position_{};
  ByRole<std::int64_t> ext_{}, trips_{}, grid_{};
  double size_ = 4, sum_ = 4;
  Price p_;
};

}  // namespace

std::string_view name_of(Place p) {
  constexpr std::array kNames = {"registers", "shared", "dsm", "global"};
  return kNames[static_cast<std::size_t>(p)];
}

Result<Device> device_of(const Machine& m, LevelId level, const Options& o) {
  Device d;
  const Level& inner = m.level(level);
  const auto path = m.path(m.home(), level);
  if (path.empty()) return Reason{formatted("{}: is home, where nothing is fused", inner.name)};
  const Level& first = m.level(path.front().second);
  const bool one = path.size() == 1;
  d.units = std::max<std::int64_t>(1, inner.instances);
  d.timed = first.bandwidth.value > 0;
  d.global = d.timed ? first.bandwidth.value * real(first.instances) : 1;
  if (!one) d.into_shared = inner.bandwidth.value;
  d.shared_capacity = inner.capacity;
  if (m.kind != "gpu" || m.units.empty() || !d.timed) return d;
  const ComputeUnit& sm = m.units.front();
  d.shared_capacity =
      inner.capacity - Bytes(std::min<std::int64_t>(1024, inner.capacity.value / 2));
  d.registers = Bytes(4 * sm.registers);
  d.units = sm.count;
  if (o.cluster > 1) d.dsm = o.dsm;
  d.shared = o.shared * sm.clock_hz * real(sm.count);
  return d;
}

std::optional<Price> price(const Chain& c, const Device& d, const Options& o, const Candidate& one,
                           bool volumes) {
  return Pricing(c, d, o, one).run(volumes);
}

}  // namespace tilewright::flashfuser
