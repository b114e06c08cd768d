#include "motley/synth/state/carried.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/text.h"
#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/strands.h"

namespace motley::synth {
namespace {

using program::Access;
using program::BufferKind;
using program::DeviceProgram;
using program::Instruction;
using program::is_persistent;

constexpr std::string_view kRest = "rest of ";

/// The exchanges of a bucket, on all devices: of its gradients, or later of its new rows.
struct BucketCall {
  bool is_of_rows = false;
  std::int64_t number = 0;
  bool is_rest = false;  ///< of one that is carried in part
  auto operator<=>(const BucketCall&) const = default;
};

std::optional<BucketCall> call_of(const Instruction& instruction) {
  if (!program::is_exchange(instruction) || !instruction.origin.is_none()) return std::nullopt;
  std::string_view label = instruction.label;
  const auto begins_with = [&](std::string_view prefix) {
    const bool does = label.starts_with(prefix);
    if (does) label.remove_prefix(prefix.size());
    return does;
  };
  const bool is_rest = begins_with(kRest), is_of_rows = begins_with(program::kUpdatedLabel);
  if (!begins_with(program::kBucketLabel)) return std::nullopt;
  const auto number = find_integer(label);
  return number ? std::optional(BucketCall{is_of_rows, *number, is_rest}) : std::nullopt;
}

/// Cuts a call's all-reduces in two: the last `share` of the elements is summed by another one
/// behind it (BucketCall::is_rest). Returns whether there is something to cut.
bool cut_call(const BucketCall& call, double share, DeviceProgram& program) {
  std::vector<Instruction> made;
  std::vector<InstructionId> places;  // of the instructions before
  bool is_cut = false;
  for (Instruction& each : program.instructions) {
    for (InstructionId& wait : each.waits) wait = places[wait.index()];
    const auto* flat =
        each.arguments.empty() ? nullptr : std::get_if<BufferId>(&each.arguments[0].value);
    const bool is_meant = call_of(each) == call && each.op == program::kAllReduce;
    if (is_meant && flat != nullptr) {
      const std::int64_t all = program.buffer(*flat).elements();
      const auto rest = static_cast<std::int64_t>(share * static_cast<double>(all));
      if (rest > 0 && rest < all) {
        const DType dtype = program.buffer(*flat).dtype;
        const BufferId root = program::storage_of(program, *flat);
        std::vector<BufferId> views;
        for (const std::int64_t elements : {all - rest, rest}) {
          views.emplace_back(static_cast<std::int64_t>(program.buffers.size()));
          program.buffers.push_back({BufferKind::kTemporary, dtype, {elements}, "", root, {}});
        }
        Instruction cut;
        cut.op = "motley::unpack";
        cut.arguments = {{*flat}};
        cut.outputs = views;
        cut.label = each.label;
        std::copy_if(each.waits.begin(), each.waits.end(), std::back_inserter(cut.waits),
                     [&](InstructionId wait) { return made[wait.index()].lane != Lane::kCompute; });
        made.push_back(std::move(cut));
        each.waits = {InstructionId(static_cast<std::int64_t>(made.size()) - 1)};
        each.arguments[0].value = views[0];
        Instruction other = each;
        other.arguments[0].value = views[1];
        other.label.insert(0, kRest);
        other.frees.clear();
        places.emplace_back(static_cast<std::int64_t>(made.size()) + 1);
        made.push_back(std::move(each));
        made.push_back(std::move(other));
        is_cut = true;
        continue;
      }
    }
    places.emplace_back(static_cast<std::int64_t>(made.size()));
    made.push_back(std::move(each));
  }
  program.instructions = std::move(made);
  return is_cut;
}

/// One device's program, and which of its instructions carried exchanges move.
class CarriedDevice {
 public:
  explicit CarriedDevice(DeviceProgram& program)
      : program_(program),
        roots_(program::storages_of(program)),
        is_moved_(program.instructions.size(), false) {
    for (std::size_t i = 0; i < size(); ++i)
      if (const auto call = call_of(program.instructions[i])) calls_[*call].push_back(i);
  }

  const std::map<BucketCall, std::vector<std::size_t>>& calls() const { return calls_; }

  /// What depends on a call's exchanges, these included, ascending.
  struct Following {
    std::vector<std::size_t> all;
    bool may_be_carried = true, updates = false;
  };
  Following follow(const BucketCall& call) const;

  void move(const Following& following) {
    for (const std::size_t i : following.all) is_moved_[i] = true;
  }
  /// All that move are known: finds in front of which instruction each comes.
  void find_places();
  /// How far into the step an exchange's results are needed, of 1; 1: nowhere here.
  double needed_at(const BucketCall& call) const;
  bool has_peers() const;
  /// How many transfers of the step itself may go before each call: before the first one those that
  /// depend on no parameter, before another one those that come before the last one is needed.
  std::vector<std::size_t> may_precede(const std::vector<BucketCall>& order, bool is_alone) const;
  void rearrange(const std::vector<BucketCall>& order, const std::vector<std::size_t>& preceding);

 private:
  std::size_t size() const { return program_.instructions.size(); }
  bool is_exchange(std::size_t i) const { return program_.instructions[i].lane != Lane::kCompute; }
  bool is_carried(BufferId root) const { return carried_.contains(root); }
  /// Calls `visit(root, Access)` for all memory that an instruction reads, writes or defines.
  template <typename Visit>
  void for_each_root(std::size_t i, const Visit& visit) const {
    const Instruction& instruction = program_.instructions[i];
    program::for_each_access(
        instruction, [&](BufferId id, Access access) { visit(roots_[id.index()], access); });
    for (const BufferId id : instruction.outputs) visit(roots_[id.index()], Access::kWrite);
  }
  void find_carried();
  void move_frees();
  void free_views();
  bool is_own_transfer(std::size_t i) const {
    return !is_moved_[i] && program_.instructions[i].lane == Lane::kTransfer;
  }
  std::size_t first_place(const BucketCall& call) const;
  std::vector<std::size_t> find_order(const std::vector<BucketCall>& order,
                                      const std::vector<std::size_t>& preceding) const;
  void set_waits(const std::vector<std::size_t>& order);

  DeviceProgram& program_;
  const std::vector<BufferId> roots_;
  std::map<BucketCall, std::vector<std::size_t>> calls_;
  std::vector<bool> is_moved_;       // by instruction
  std::set<BufferId> carried_;       // roots
  std::vector<std::size_t> places_;  // by moved instruction: the one that it comes before
};

CarriedDevice::Following CarriedDevice::follow(const BucketCall& call) const {
  Following following;
  const auto found = calls_.find(call);
  if (found == calls_.end()) return following;
  std::vector<bool> touched(program_.buffers.size(), false);  // roots
  auto start = found->second.begin();
  for (std::size_t i = *start; i < size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    const bool is_start = start != found->second.end() && *start == i;
    if (is_start) ++start;
    bool depends = is_start;
    for_each_root(i, [&](BufferId root, Access) { depends = depends || touched[root.index()]; });
    if (!depends) continue;
    following.all.push_back(i);
    if ((!is_start && is_exchange(i)) || instruction.op == "motley::report")
      following.may_be_carried = false;
    for_each_root(i, [&](BufferId root, Access access) {
      const BufferKind kind = program_.buffer(root).kind;
      if (kind == BufferKind::kInput) following.may_be_carried = false;
      if (access == Access::kRead) return;
      touched[root.index()] = true;
      following.updates = following.updates || kind == BufferKind::kParameter;
    });
  }
  return following;
}

/// What moved instructions use of the step in which the exchange was due.
void CarriedDevice::find_carried() {
  std::set<BufferId> made;  // by moved instructions
  for (std::size_t i = 0; i < size(); ++i) {
    if (!is_moved_[i]) continue;
    program::for_each_buffer(program_.instructions[i].arguments, [&](BufferId id) {
      program::Buffer& buffer = program_.buffers[id.index()];
      if (is_persistent(buffer.kind) || made.contains(id)) return;
      const BufferId root = roots_[id.index()];
      if (is_persistent(program_.buffer(root).kind)) return;
      for (const BufferId each : {id, root})
        program_.buffers[each.index()].kind = BufferKind::kCarried;
      carried_.insert(root);
    });
    const auto& outputs = program_.instructions[i].outputs;
    made.insert(outputs.begin(), outputs.end());
  }
}

void CarriedDevice::find_places() {
  find_carried();
  // Of what stays: the first that uses a root, and the first that writes it.
  std::map<BufferId, std::size_t> used, written;
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_moved_[i]) continue;
    for_each_root(i, [&](BufferId root, Access access) {
      used.try_emplace(root, i);
      if (access == Access::kWrite) written.try_emplace(root, i);
    });
  }
  places_.assign(size(), size());
  std::map<BufferId, std::size_t> by_root;  // the first place of moved ones behind that use it
  for (std::size_t i = size(); i-- > 0;) {
    if (!is_moved_[i]) continue;
    for_each_root(i, [&](BufferId root, Access access) {
      const auto& rivals = access == Access::kWrite || is_carried(root) ? used : written;
      if (const auto rival = rivals.find(root); rival != rivals.end())
        places_[i] = std::min(places_[i], rival->second);
      if (const auto behind = by_root.find(root); behind != by_root.end())
        places_[i] = std::min(places_[i], behind->second);
    });
    for_each_root(i, [&](BufferId root, Access) { by_root[root] = places_[i]; });
  }
}

std::size_t CarriedDevice::first_place(const BucketCall& call) const {
  std::size_t first = size();
  for (const std::size_t i : follow(call).all)
    if (!is_exchange(i)) first = std::min(first, places_[i]);
  return first;
}

double CarriedDevice::needed_at(const BucketCall& call) const {
  return static_cast<double>(first_place(call)) /
         static_cast<double>(std::max<std::size_t>(size(), 1));
}

bool CarriedDevice::has_peers() const {
  for (std::size_t i = 0; i < size(); ++i)
    if (!is_moved_[i] && program_.instructions[i].lane == Lane::kPeer) return true;
  return false;
}

std::vector<std::size_t> CarriedDevice::may_precede(const std::vector<BucketCall>& order,
                                                    bool is_alone) const {
  std::size_t until = 0;  // the first that reads a parameter
  const auto reads_parameter = [&](std::size_t i) {
    bool reads = false;
    for_each_root(i, [&](BufferId root, Access) {
      reads = reads || program_.buffer(root).kind == BufferKind::kParameter;
    });
    return reads;
  };
  while (until < size() && (is_moved_[until] || !reads_parameter(until))) ++until;
  std::vector<std::size_t> preceding;
  std::size_t count = 0, i = 0;
  for (const BucketCall& call : order) {
    for (; i < until; ++i) count += is_own_transfer(i) ? 1 : 0;
    preceding.push_back(count);
    if (is_alone) until = std::max(until, first_place(call));
  }
  return preceding;
}

/// Each instruction in front of the one that it precedes; calls behind so many own transfers.
std::vector<std::size_t> CarriedDevice::find_order(
    const std::vector<BucketCall>& order, const std::vector<std::size_t>& preceding) const {
  std::vector<std::size_t> made;
  std::map<std::size_t, std::vector<std::size_t>> before;
  for (std::size_t i = 0; i < size(); ++i)
    if (is_moved_[i] && !is_exchange(i)) before[places_[i]].push_back(i);
  std::size_t next = 0, passed = 0;
  const auto begin_calls = [&] {
    for (; next < order.size() && preceding[next] <= passed; ++next)
      if (const auto here = calls_.find(order[next]); here != calls_.end())
        made.insert(made.end(), here->second.begin(), here->second.end());
  };
  begin_calls();
  for (std::size_t i = 0; i <= size(); ++i) {
    if (const auto here = before.find(i); here != before.end())
      made.insert(made.end(), here->second.begin(), here->second.end());
    if (i == size() || is_moved_[i]) continue;
    made.push_back(i);
    passed += is_own_transfer(i) ? 1 : 0;
    begin_calls();
  }
  return made;
}

/// Frees follow the last use: of what is carried behind moved instructions, of all else not.
void CarriedDevice::move_frees() {
  std::map<BufferId, std::size_t> last;  // moved compute instruction that uses it
  std::set<BufferId> used;               // by any moved one
  for (std::size_t i = 0; i < size(); ++i) {
    if (!is_moved_[i]) continue;
    const auto use = [&](BufferId id) {
      used.insert(id);
      if (!is_exchange(i)) last[id] = i;
    };
    program::for_each_buffer(program_.instructions[i].arguments, use);
    for (const BufferId id : program_.instructions[i].outputs) use(id);
  }
  std::vector<BufferId> left;  // freed by a moved instruction that does not use it
  std::vector<std::pair<std::size_t, BufferId>> placed;
  for (std::size_t i = 0; i < size(); ++i) {
    std::vector<BufferId>& frees = program_.instructions[i].frees;
    if (!is_moved_[i] && !is_exchange(i))
      for (const BufferId id : std::exchange(left, {})) placed.emplace_back(i, id);
    std::erase_if(frees, [&](BufferId id) {
      if (is_moved_[i] == used.contains(id)) return false;
      if (is_moved_[i]) {
        left.push_back(id);
      } else if (const auto at = last.find(id); at != last.end()) {
        placed.emplace_back(at->second, id);
      }
      return true;
    });
  }
  for (const auto& [at, id] : placed) program_.instructions[at].frees.push_back(id);
  free_views();
}

/// A carried view that only exchanges use is freed where its memory is used last.
void CarriedDevice::free_views() {
  std::map<BufferId, std::size_t> last;  // by root: moved compute instruction
  std::set<BufferId> viewed, freed;
  for (std::size_t i = 0; i < size(); ++i) {
    const auto& frees = program_.instructions[i].frees;
    freed.insert(frees.begin(), frees.end());
    if (!is_moved_[i]) continue;
    program::for_each_buffer(program_.instructions[i].arguments, [&](BufferId id) {
      if (!is_exchange(i)) last[roots_[id.index()]] = i;
      if (is_exchange(i) && roots_[id.index()] != id) viewed.insert(id);
    });
  }
  for (const BufferId id : viewed)
    if (const auto at = last.find(roots_[id.index()]); at != last.end() && !freed.contains(id))
      program_.instructions[at->second].frees.push_back(id);
}

/// Sets waits anew: what stays waits for what it knew to have finished and has not moved away; all
/// wait for what they share memory with.
void CarriedDevice::set_waits(const std::vector<std::size_t>& order) {
  const program::Order known(program_);
  const program::Strands& strands = known.strands();
  const std::size_t count = strands.all.size();
  std::vector<InstructionId> at(size());  // new position
  for (std::size_t place = 0; place < order.size(); ++place)
    at[order[place]] = InstructionId(place);
  std::vector<InstructionId> stayed(size());  // the last that stays in its strand, up to here
  std::vector<InstructionId> last(count);
  for (std::size_t i = 0; i < size(); ++i) {
    if (!is_moved_[i]) last[strands.of[i]] = InstructionId(i);
    stayed[i] = last[strands.of[i]];
  }
  // By new position: what of each strand has finished before it, as new positions.
  std::vector<std::vector<InstructionId>> clocks(size());
  std::vector<std::vector<InstructionId>> clock_of(count, std::vector<InstructionId>(count));
  std::map<BufferId, std::vector<std::size_t>> moved_users;
  std::vector<std::vector<InstructionId>> waits(size());
  for (const std::size_t i : order) {
    const std::size_t own = strands.of[i];
    std::vector<InstructionId> needed(count);
    const auto need = [&](std::size_t other) {
      InstructionId& most = needed[strands.of[other]];
      most = std::max(most, at[other]);
    };
    if (!is_moved_[i])
      for (std::size_t strand = 0; strand < count; ++strand)
        if (const InstructionId before =
                strand == own ? InstructionId() : known.finished(i, strand);
            !before.is_none() && !stayed[before.index()].is_none())
          need(stayed[before.index()].index());
    for_each_root(i, [&](BufferId root, Access) {
      const auto users = moved_users.find(root);
      if (users == moved_users.end()) return;
      for (const std::size_t user : users->second) need(user);
    });
    if (is_moved_[i])
      for_each_root(i, [&](BufferId root, Access) { moved_users[root].push_back(i); });
    std::vector<InstructionId> wanted;
    for (std::size_t strand = 0; strand < count; ++strand)
      if (strand != own && !needed[strand].is_none()) wanted.push_back(needed[strand]);
    std::sort(wanted.rbegin(), wanted.rend());
    std::vector<InstructionId>& clock = clock_of[own];
    for (const InstructionId each : wanted) {
      const std::size_t strand = strands.of[order[each.index()]];
      if (each <= clock[strand]) continue;
      waits[i].push_back(each);
      for (std::size_t s = 0; s < count; ++s)
        clock[s] = std::max(clock[s], clocks[each.index()][s]);
      clock[strand] = std::max(clock[strand], each);
    }
    std::sort(waits[i].begin(), waits[i].end());
    clocks[at[i].index()] = clock;
    clock[own] = at[i];
  }
  for (std::size_t i = 0; i < size(); ++i) program_.instructions[i].waits = std::move(waits[i]);
}

void CarriedDevice::rearrange(const std::vector<BucketCall>& calls,
                              const std::vector<std::size_t>& preceding) {
  move_frees();
  const std::vector<std::size_t> order = find_order(calls, preceding);
  set_waits(order);
  std::vector<Instruction> made;
  made.reserve(size());
  for (const std::size_t i : order) {
    made.push_back(std::move(program_.instructions[i]));
    made.back().is_carried = is_moved_[i];
    if (is_moved_[i]) made.back().label.insert(0, "last step's ");
  }
  program_.instructions = std::move(made);
}

/// The devices of a program, and the exchanges that they carry together.
class Carried {
 public:
  explicit Carried(program::Program& program) {
    devices_.reserve(program.devices.size());
    for (DeviceProgram& each : program.devices) {
      devices_.emplace_back(each);
      for (const auto& [call, exchanges] : devices_.back().calls()) all_.insert(call);
    }
  }

  /// Returns the last `count` that can be carried, or all of these, last first.
  std::vector<BucketCall> find(std::int64_t count) const {
    std::vector<BucketCall> found;
    for (auto call = all_.rbegin();
         call != all_.rend() && static_cast<std::int64_t>(found.size()) < count; ++call) {
      bool may = true, updates = false;
      for (const CarriedDevice& device : devices_) {
        const auto following = device.follow(*call);
        may = may && following.may_be_carried;
        updates = updates || following.updates;
      }
      if (may && updates) found.push_back(*call);
    }
    return found;
  }

  void carry(std::vector<BucketCall> chosen) {
    for (CarriedDevice& device : devices_) {
      for (const BucketCall& call : chosen) device.move(device.follow(call));
      device.find_places();
    }
    std::map<BucketCall, double> needed;
    for (const BucketCall& call : chosen) {
      double& first = needed.emplace(call, 1).first->second;
      for (const CarriedDevice& device : devices_) first = std::min(first, device.needed_at(call));
    }
    std::sort(chosen.begin(), chosen.end(), [&](const BucketCall& a, const BucketCall& b) {
      return std::pair(needed[a], a) < std::pair(needed[b], b);
    });
    const bool is_alone = std::none_of(devices_.begin(), devices_.end(),
                                       [](const CarriedDevice& each) { return each.has_peers(); });
    std::vector<std::size_t> preceding(chosen.size(), SIZE_MAX);
    for (const CarriedDevice& device : devices_) {
      const std::vector<std::size_t> here = device.may_precede(chosen, is_alone);
      for (std::size_t c = 0; c < here.size(); ++c) preceding[c] = std::min(preceding[c], here[c]);
    }
    for (CarriedDevice& device : devices_) device.rearrange(chosen, preceding);
  }

 private:
  std::vector<CarriedDevice> devices_;
  std::set<BucketCall> all_;
};

}  // namespace

program::Program with_carried(program::Program program, const plan::Carried& carried) {
  if (carried.exchanges == 0) return program;
  const auto whole = static_cast<std::int64_t>(std::min(carried.exchanges, 1e9));
  const double share = carried.exchanges - static_cast<double>(whole);
  std::vector<BucketCall> chosen =
      Carried(program).find(carried.skipped + whole + (share > 0 ? 1 : 0));
  const auto found = static_cast<std::int64_t>(chosen.size());
  if (share > 0 && found > carried.skipped + whole) {
    BucketCall& last = chosen.back();
    bool is_cut = false;
    for (DeviceProgram& device : program.devices) is_cut = cut_call(last, share, device) || is_cut;
    last.is_rest = true;
    if (!is_cut) chosen.pop_back();
  }
  chosen.erase(chosen.begin(), chosen.begin() + std::min(carried.skipped, found));
  if (!chosen.empty()) Carried(program).carry(std::move(chosen));
  return program;
}

std::int64_t count_carriable(program::Program program) {
  return static_cast<std::int64_t>(
      Carried(program).find(std::numeric_limits<std::int64_t>::max()).size());
}

}  // namespace motley::synth
