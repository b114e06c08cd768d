#include "motley/program/program_verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "motley/base/text.h"
#include "motley/program/boxes.h"
#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"

namespace motley::program {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

/// Violations found so far, each with its place.
class Violations {
 public:
  Violations(const std::string& name, const SourceLines& lines) : name_(name), lines_(lines) {}

  void add(std::string_view text) { found_.push_back(fmt::format("{}: {}", name_, text)); }
  void add_group(std::size_t group, std::string_view text) {
    add_at(group < lines_.groups.size() ? lines_.groups[group] : 0,
           fmt::format("group {}: {}", group, text));
  }
  void add_device(const Program& program, std::size_t rank, std::string_view text) {
    add_at(rank < lines_.devices.size() ? lines_.devices[rank].line : 0,
           fmt::format("{}: {}", program.devices[rank].device, text));
  }
  void add_buffer(const Program& program, std::size_t rank, std::size_t id, std::string_view text) {
    add_at(rank < lines_.devices.size() ? lines_.devices[rank].buffers[id] : 0,
           fmt::format("{} %{}: {}", program.devices[rank].device, id, text));
  }
  void add_instruction(const Program& program, std::size_t rank, std::size_t id,
                       std::string_view text) {
    const DeviceProgram& device = program.devices[rank];
    add_at(
        rank < lines_.devices.size() ? lines_.devices[rank].instructions[id] : 0,
        fmt::format("{} ^{} {}: {}", device.device, id, device.instructions[id].full_name(), text));
  }
  std::size_t size() const { return found_.size(); }
  Result<void> result() const {
    if (found_.empty()) return {};
    return usage_error("program.verify", join(found_, "\n"));
  }

 private:
  void add_at(int line, std::string_view text) {
    found_.push_back(line > 0 ? fmt::format("{}:{}: {}", name_, line, text)
                              : fmt::format("{}: {}", name_, text));
  }

  const std::string& name_;
  const SourceLines& lines_;
  std::vector<std::string> found_;
};

void check_groups(const Program& program, Violations& violations) {
  std::vector<std::size_t> seen_in(program.devices.size(), SIZE_MAX);
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const std::vector<Rank>& members = program.groups[g].members;
    if (members.empty()) violations.add_group(g, "has no members");
    for (const Rank rank : members) {
      if (rank.is_none() || rank.index() >= seen_in.size()) {
        violations.add_group(g, fmt::format("rank {} is not one of the {} devices", rank.value,
                                            program.devices.size()));
      } else if (std::exchange(seen_in[rank.index()], g) == g) {
        violations.add_group(g, fmt::format("rank {} is a member twice", rank.value));
      }
    }
  }
}

void check_devices(const Program& program, Violations& violations) {
  std::unordered_set<std::string_view> names;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const DeviceProgram& device = program.devices[rank];
    if (device.is_elsewhere && !(device.buffers.empty() && device.instructions.empty()))
      violations.add_device(program, rank, "is elsewhere, and yet has buffers or instructions");
    if (device.device.empty()) violations.add_device(program, rank, "a device without a name");
    if (!names.insert(device.device).second)
      violations.add_device(program, rank, "two devices of this name");
    const std::int64_t times = program.micro_batches;
    const bool is_even =
        times > 0 && device.samples % times == 0 && program.global_batch % times == 0;
    if (!is_even || device.samples < 0 || device.first_sample < 0 ||
        device.samples / times > program.global_batch / times - device.first_sample)
      violations.add_device(
          program, rank,
          fmt::format("found {} samples from sample {}, wanted a part of the global batch of {}{}",
                      device.samples, device.first_sample, program.global_batch,
                      times == 1 ? "" : fmt::format(" in {} micro-batches", times)));
  }
}

/// The last access to each buffer per strand; few strands access a buffer.
class LastOnes {
 public:
  explicit LastOnes(std::size_t buffers) : first_(buffers, kNone) {}

  void note(BufferId id, std::size_t strand, InstructionId instruction) {
    std::size_t* link = &first_[id.index()];
    while (*link != kNone && entries_[*link].strand != strand) link = &entries_[*link].next;
    if (*link != kNone) {
      entries_[*link].instruction = instruction;
      return;
    }
    entries_.push_back({strand, instruction, first_[id.index()]});
    first_[id.index()] = entries_.size() - 1;
  }

  /// Returns the earliest of these that may not have finished when `i` starts; none if all have.
  InstructionId find_rival(BufferId id, const Order& order, std::size_t i) const {
    InstructionId rival;
    for (std::size_t at = first_[id.index()]; at != kNone; at = entries_[at].next) {
      const InstructionId each = entries_[at].instruction;
      if (!order.has_finished(each, i) && (rival.is_none() || each < rival)) rival = each;
    }
    return rival;
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  struct Entry {
    std::size_t strand;
    InstructionId instruction;
    std::size_t next;
  };
  std::vector<std::size_t> first_;  // by buffer, into entries_
  std::vector<Entry> entries_;
};

/// Checks what one device's program must satisfy on its own.
class DeviceVerifier {
 public:
  DeviceVerifier(const Program& program, std::size_t rank, Violations& violations)
      : program_(program),
        rank_(rank),
        device_(program.devices[rank]),
        violations_(violations),
        used_(device_.buffers.size()),
        accessed_(device_.buffers.size()),
        written_(device_.buffers.size()) {}

  /// Returns true if ids and sizes are valid, so that further checks can follow them.
  bool check_structure() {
    const std::size_t before = violations_.size();
    check_buffers();
    // Each check relies on those before it: a walk along views could leave the buffers or not end.
    if (violations_.size() == before) check_view_cycles();
    buffers_are_sound_ = violations_.size() == before;
    for (std::size_t i = 0; i < device_.instructions.size(); ++i) check_ids(i);
    return violations_.size() == before;
  }

  /// Checks definitions, uses, frees and the order of strands. Linear, times strands with waits.
  void check_flow() {
    storages_ = storages_of(device_);
    order_.emplace(device_);
    handles_.assign(device_.buffers.size(), {});
    for (std::size_t i = 0; i < device_.instructions.size(); ++i) {
      check_arguments(i);
      check_outputs(i);
      check_frees(i);
    }
    for (std::size_t id = 0; id < device_.buffers.size(); ++id)
      if (is_carried(BufferId(id)) && handles_[id].defined.is_none())
        report_buffer(id, "is carried to the next step, and yet never defined");
  }

 private:
  struct Handle {
    InstructionId defined, freed;
  };

  template <typename... T>
  void report_buffer(std::size_t id, fmt::format_string<T...> text, T&&... values) {
    violations_.add_buffer(program_, rank_, id, fmt::format(text, std::forward<T>(values)...));
  }
  template <typename... T>
  void report(std::size_t id, fmt::format_string<T...> text, T&&... values) {
    violations_.add_instruction(program_, rank_, id, fmt::format(text, std::forward<T>(values)...));
  }

  void check_buffers() {
    std::unordered_set<std::string_view> names;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < device_.buffers.size(); ++i) {
      const Buffer& buffer = device_.buffers[i];
      check_size(i, total);
      if (is_persistent(buffer.kind)) {
        if (buffer.name.empty()) report_buffer(i, "lives from step to step but has no name");
        if (!buffer.name.empty() && !names.insert(buffer.name).second)
          report_buffer(i, "two buffers of the name '{}'", buffer.name);
        if (!buffer.view_of.is_none())
          report_buffer(i, "lives from step to step, so it cannot be a view");
      }
      if (is_complex(buffer.dtype) && buffer.kind != BufferKind::kTemporary)
        report_buffer(i, "only a temporary may be complex");
      if (buffer.part) check_part(i);
      if (!buffer.view_of.is_none() && buffer.view_of.index() >= device_.buffers.size())
        report_buffer(i, "is a view of %{}, which does not exist", buffer.view_of.value);
    }
  }

  /// Checks that the buffer's elements are whole rows of [before, extent, after] from `begin` on.
  void check_part(std::size_t id) {
    const Buffer& buffer = device_.buffers[id];
    const Part& part = *buffer.part;
    if (!is_persistent(buffer.kind))
      return report_buffer(id, "only what lives from step to step is kept in parts");
    std::int64_t row = 0, whole = 0;
    const bool fits = part.before > 0 && part.after > 0 && part.begin >= 0 && part.extent > 0 &&
                      !__builtin_mul_overflow(part.before, part.after, &row) &&
                      !__builtin_mul_overflow(row, part.extent, &whole);
    std::int64_t elements = 1;
    for (const std::int64_t size : buffer.shape)  // check_size reports an overflow
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return;
    if (!fits || elements % row != 0 || elements / row > part.extent - part.begin)
      report_buffer(id, "{} elements are no rows {}... of [{}, {}, {}]", elements, part.begin,
                    part.before, part.extent, part.after);
  }

  void check_size(std::size_t id, std::int64_t& total) {
    std::int64_t bytes = dtype_size(device_.buffers[id].dtype);
    for (const std::int64_t extent : device_.buffers[id].shape) {
      if (extent < 0) return report_buffer(id, "found an extent of {}", extent);
      // Far below 2^63, so that sums over a program's buffers cannot overflow either.
      if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMostBytes)
        return report_buffer(id, "is larger than 2^60 bytes");
    }
    // A dtype of zero bytes still has a count of elements, which must fit.
    std::int64_t elements = 1;
    for (const std::int64_t extent : device_.buffers[id].shape)
      if (__builtin_mul_overflow(elements, extent, &elements))
        return report_buffer(id, "has more than 2^63 elements");
    total += bytes;
    if (total > kMostBytes) {
      report_buffer(id, "with those before it is larger than 2^60 bytes");
      total = 0;
    }
  }

  void check_view_cycles() {
    std::vector<std::size_t> walk(device_.buffers.size(), SIZE_MAX);  // start that first saw it
    for (std::size_t start = 0; start < walk.size(); ++start) {
      BufferId at(static_cast<std::int64_t>(start));
      while (!at.is_none() && walk[at.index()] == SIZE_MAX) {
        walk[at.index()] = start;
        at = device_.buffer(at).view_of;
      }
      if (!at.is_none() && walk[at.index()] == start)
        report_buffer(at.index(), "is a view of itself");
    }
  }

  bool exists(BufferId id) const { return !id.is_none() && id.index() < device_.buffers.size(); }

  void check_ids(std::size_t i) {
    const Instruction& instruction = device_.instructions[i];
    const auto check_buffer = [&](BufferId id) {
      if (!exists(id)) report(i, "names %{}, which does not exist", id.value);
    };
    for_each_buffer(instruction.arguments, check_buffer);
    for (const BufferId id : instruction.outputs) check_buffer(id);
    for (const BufferId id : instruction.frees) check_buffer(id);
    for (const InstructionId wait : instruction.waits) {
      if (wait.is_none() || wait.index() >= i) {
        report(i, "waits for ^{}, which does not come before it", wait.value);
      } else if (strand_of(device_.instructions[wait.index()]) == strand_of(instruction)) {
        report(i, "waits for ^{} of its own {}", wait.value,
               instruction.lane == Lane::kPeer
                   ? "strand"
                   : fmt::format("{} lane", lane_name(instruction.lane)));
      }
    }
    const std::size_t before = violations_.size();
    check_group(i);
    if (violations_.size() == before && has_sound_buffers(instruction)) {
      std::string fault = find_parts_fault(program_, rank_, instruction);
      if (fault.empty()) fault = find_box_fault(device_, instruction);
      if (!fault.empty()) report(i, "{}", fault);
    }
    if (instruction.op == kSend || instruction.op == kReceive) {
      check_peer(i);
    } else if (instruction.lane == Lane::kPeer) {
      report(i, "is in the peer lane, which is for sends and receives");
    }
  }

  bool has_sound_buffers(const Instruction& instruction) const {
    bool sound = buffers_are_sound_;
    const auto look = [&](BufferId id) { sound = sound && exists(id); };
    for_each_buffer(instruction.arguments, look);
    for (const BufferId id : instruction.outputs) look(id);
    return sound;
  }

  void check_peer(std::size_t i) {
    const Instruction& instruction = device_.instructions[i];
    const bool is_send = instruction.op == kSend;
    const Rank peer = peer_of(instruction);
    const ArgumentList& arguments = instruction.arguments;
    if (instruction.lane != Lane::kPeer)
      report(i, "is in the {} lane, wanted the peer lane", lane_name(instruction.lane));
    if (!instruction.group.is_none()) report(i, "is between two devices, not of a group");
    if (peer.is_none() || (is_send && !std::holds_alternative<BufferId>(arguments[0].value))) {
      report(i, "wanted {}", is_send ? "a buffer and a rank" : "a rank");
    } else if (peer.index() >= program_.devices.size()) {
      report(i, "rank {} is not one of the {} devices", peer.value, program_.devices.size());
    } else if (peer.index() == rank_) {
      report(i, "rank {} is this device itself", peer.value);
    }
    if (instruction.outputs.size() != (is_send ? 0U : 1U)) {
      report(i, "found {} results, wanted {}", instruction.outputs.size(), is_send ? 0 : 1);
    } else if (!is_send && exists(instruction.outputs[0]) &&
               !device_.buffer(instruction.outputs[0]).view_of.is_none()) {
      report(i, "receives %{}, which is a view", instruction.outputs[0].value);
    }
  }

  void check_group(std::size_t i) {
    const Instruction& instruction = device_.instructions[i];
    const GroupId group = instruction.group;
    if (group.is_none()) {
      if (is_collective(instruction.op)) report(i, "a collective without a group");
    } else if (group.index() >= program_.groups.size()) {
      report(i, "group {} does not exist", group.value);
    } else {
      for (const Rank rank : program_.groups[group.index()].members)
        if (rank.value == static_cast<std::int32_t>(rank_)) return;
      report(i, "this device is no member of group {}", group.value);
    }
  }

  bool is_carried(BufferId id) const { return device_.buffer(id).kind == BufferKind::kCarried; }

  /// What the step before carried over is there until it is defined anew.
  bool is_defined(BufferId id) const {
    return is_persistent(device_.buffer(id).kind) || is_carried(id) ||
           !handles_[id.index()].defined.is_none();
  }

  /// Instructions of two steps may meet in carried buffers and what lives on alone.
  void check_step(std::size_t i, BufferId id) {
    const InstructionId maker = handles_[id.index()].defined;
    const bool is_of_last = device_.instructions[i].is_carried;
    if (!maker.is_none() && device_.instructions[maker.index()].is_carried != is_of_last)
      report(i, "uses %{} of ^{}, which belongs to the step {}", id.value, maker.value,
             is_of_last ? "behind" : "before");
    if (is_carried(id) && maker.is_none() && !is_of_last)
      report(i, "uses %{} of the step before", id.value);
  }

  /// Returns whether an instruction only makes views and so touches no memory.
  bool makes_views_only(const Instruction& instruction) const {
    for (const BufferId id : instruction.outputs)
      if (device_.buffer(id).view_of.is_none()) return false;
    return !instruction.outputs.empty();
  }

  void check_arguments(std::size_t i) {
    const Instruction& instruction = device_.instructions[i];
    const bool views_only = makes_views_only(instruction);
    for_each_access(instruction, [&](BufferId id, Access access) {
      const Handle& handle = handles_[id.index()];
      note(used_, id, i);
      if (!is_defined(id)) return report(i, "uses %{} before it is defined", id.value);
      if (!handle.freed.is_none())
        return report(i, "uses %{} after ^{} freed it", id.value, handle.freed.value);
      check_step(i, id);
      if (!order_->has_finished(handle.defined, i))
        return report(i, "uses %{} without waiting for ^{}, which defines it", id.value,
                      handle.defined.value);
      // A race between lanes gives right results most of the time, so every one is reported here.
      if (access == Access::kWrite || !views_only) touch(i, id, access);
    });
  }

  void note(LastOnes& ones, BufferId id, std::size_t i) const {
    ones.note(id, order_->strands().of[i], InstructionId(static_cast<std::int64_t>(i)));
  }

  /// Checks an access: strands may read the same memory at once, a write excludes all others.
  void touch(std::size_t i, BufferId id, Access access) {
    const bool writes = access == Access::kWrite;
    const BufferId root = storages_[id.index()];
    const InstructionId rival = (writes ? accessed_ : written_).find_rival(root, *order_, i);
    if (!rival.is_none())
      report(i, "{} %{} without waiting for ^{}, which {} its memory in the {} lane",
             writes ? "writes" : "reads", id.value, rival.value, writes ? "uses" : "writes",
             lane_name(device_.instructions[rival.index()].lane));
    note(accessed_, root, i);
    if (writes) note(written_, root, i);
  }

  void check_outputs(std::size_t i) {
    const InstructionId self(static_cast<std::int64_t>(i));
    for (const BufferId id : device_.instructions[i].outputs) {
      const Buffer& buffer = device_.buffer(id);
      Handle& handle = handles_[id.index()];
      if (is_persistent(buffer.kind)) {
        report(i, "defines %{}, which lives from step to step", id.value);
      } else if (!handle.defined.is_none()) {
        report(i, "defines %{}, which ^{} has defined", id.value, handle.defined.value);
      }
      handle.defined = self;
      if (is_carried(id)) handle.freed = InstructionId();
      note(used_, id, i);
      if (buffer.view_of.is_none()) {
        touch(i, id, Access::kWrite);
      } else if (!is_defined(buffer.view_of)) {
        report(i, "defines %{} as a view of %{}, which is not defined", id.value,
               buffer.view_of.value);
      }
    }
  }

  void check_frees(std::size_t i) {
    for (const BufferId id : device_.instructions[i].frees) {
      Handle& handle = handles_[id.index()];
      const InstructionId rival = used_.find_rival(id, *order_, i);
      if (is_persistent(device_.buffer(id).kind)) {
        report(i, "frees %{}, which lives from step to step", id.value);
      } else if (!is_defined(id)) {
        report(i, "frees %{} before it is defined", id.value);
      } else if (!handle.freed.is_none()) {
        report(i, "frees %{}, which ^{} has freed", id.value, handle.freed.value);
      } else if (!rival.is_none()) {
        report(i, "frees %{} without waiting for ^{}, which uses it", id.value, rival.value);
      }
      handle.freed = InstructionId(static_cast<std::int64_t>(i));
    }
  }

  const Program& program_;
  const std::size_t rank_;
  const DeviceProgram& device_;
  Violations& violations_;
  bool buffers_are_sound_ = false;
  std::vector<BufferId> storages_;
  std::optional<Order> order_;
  std::vector<Handle> handles_;  // by buffer
  LastOnes used_;                // by buffer
  LastOnes accessed_, written_;  // by root
};

/// What must agree among the members of a group.
struct Collective {
  std::size_t instruction;
  std::string name;
  bool is_all_to_all;
  std::int64_t elements;  ///< if all members have the same number
  DType dtype;
  ExchangeParts parts;  ///< of collectives with parts

  bool matches(const Collective& o) const {
    return name == o.name && elements == o.elements && dtype == o.dtype &&
           parts.cell == o.parts.cell && (is_all_to_all || parts.counts == o.parts.counts);
  }
};

Collective describe_collective(const DeviceProgram& device, std::size_t i) {
  const Instruction& instruction = device.instructions[i];
  Collective collective{i, instruction.full_name(), instruction.op == kAllToAll, 0, DType::kNone,
                        {}};
  bool is_first = true;
  for_each_buffer(instruction.arguments, [&](BufferId id) {
    if (!std::exchange(is_first, false)) return;
    collective.elements = device.buffer(id).elements();
    collective.dtype = device.buffer(id).dtype;
  });
  if (auto parts = find_exchange_parts(instruction)) {
    collective.elements = 0;
    collective.parts = std::move(*parts);
  }
  return collective;
}

std::string print_collective(const Collective& c) {
  if (c.parts.cell > 0)
    return fmt::format("{} of {} {} a part", c.name, c.parts.cell, dtype_name(c.dtype));
  if (c.is_all_to_all) return fmt::format("{} of {}", c.name, dtype_name(c.dtype));
  if (!c.parts.counts.empty())
    return fmt::format("{} of [{}] {}", c.name, fmt::join(c.parts.counts, ", "),
                       dtype_name(c.dtype));
  return fmt::format("{} of {} {}", c.name, c.elements, dtype_name(c.dtype));
}

/// Checks the n-th collective of a group, an all-to-all on all members: members receive what was
/// sent to them, and a padded one's cell is the largest of all counts.
void check_all_to_all(const Program& program, std::size_t group,
                      const std::vector<std::vector<Collective>>& by_rank, std::size_t n,
                      Violations& violations) {
  const std::vector<Rank>& members = program.groups[group].members;
  std::int64_t largest = 1;
  for (const Rank member : members)
    for (const std::int64_t count : by_rank[member.index()][n].parts.counts)
      largest = std::max(largest, count);
  const Collective& first = by_rank[members[0].index()][n];
  if (first.parts.cell > 0 && first.parts.cell != largest)
    violations.add_instruction(program, members[0].index(), first.instruction,
                               fmt::format("number {} of group {}: found cells of {}, wanted {}", n,
                                           group, first.parts.cell, largest));
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Collective& receiver = by_rank[members[i].index()][n];
    for (std::size_t j = 0; j < members.size(); ++j) {
      const Collective& sender = by_rank[members[j].index()][n];
      const std::int64_t found = receiver.parts.receives[j], wanted = sender.parts.counts[i];
      if (found != wanted)
        violations.add_instruction(
            program, members[i].index(), receiver.instruction,
            fmt::format("number {} of group {}: found {} elements from {}, wanted {} as sent by "
                        "^{}",
                        n, group, found, program.devices[members[j].index()].device, wanted,
                        sender.instruction));
    }
  }
}

/// Returns the members whose instructions this program contains.
std::vector<Rank> members_here(const Program& program, std::size_t group) {
  std::vector<Rank> here;
  for (const Rank member : program.groups[group].members)
    if (!program.devices[member.index()].is_elsewhere) here.push_back(member);
  return here;
}

/// Checks that a group's members have the same collectives in order: operator, size and dtype.
void check_collectives(const Program& program, Violations& violations) {
  std::vector<std::vector<std::vector<Collective>>> by_group(program.groups.size());
  for (auto& ranks : by_group) ranks.resize(program.devices.size());
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const DeviceProgram& device = program.devices[rank];
    for (std::size_t i = 0; i < device.instructions.size(); ++i)
      if (const GroupId group = device.instructions[i].group; !group.is_none())
        by_group[group.index()][rank].push_back(describe_collective(device, i));
  }
  for (std::size_t g = 0; g < by_group.size(); ++g) {
    const std::vector<Rank> members = members_here(program, g);
    if (members.empty()) continue;
    const std::size_t first = members.front().index();
    const std::vector<Collective>& wanted = by_group[g][first];
    bool agree = members.size() == program.groups[g].members.size();
    for (const Rank member : members) {
      const std::vector<Collective>& found = by_group[g][member.index()];
      for (std::size_t n = 0; n < std::min(found.size(), wanted.size()); ++n) {
        if (found[n].matches(wanted[n])) continue;
        violations.add_instruction(
            program, member.index(), found[n].instruction,
            fmt::format("number {} of group {}: found {}, wanted {} as in ^{} on {}", n, g,
                        print_collective(found[n]), print_collective(wanted[n]),
                        wanted[n].instruction, program.devices[first].device));
        agree = false;
        break;
      }
      agree = agree && found.size() == wanted.size();
      if (found.size() != wanted.size())
        violations.add_device(
            program, member.index(),
            fmt::format("found {} collectives of group {}, wanted {} as on {}", found.size(), g,
                        wanted.size(), program.devices[first].device));
    }
    for (std::size_t n = 0; agree && n < wanted.size(); ++n)
      if (wanted[n].is_all_to_all) check_all_to_all(program, g, by_group[g], n, violations);
  }
}

struct End {
  std::size_t rank, instruction;
};

struct Ends {
  std::vector<End> sends, receives;
};

const Buffer& sent_buffer(const Program& program, const End& end) {
  const DeviceProgram& device = program.devices[end.rank];
  const Instruction& instruction = device.instructions[end.instruction];
  return device.buffer(instruction.outputs.empty()
                           ? std::get<BufferId>(instruction.arguments[0].value)
                           : instruction.outputs[0]);
}

/// Checks that the n-th send between two ranks matches the n-th receive in size and dtype.
void check_sends(const Program& program, Violations& violations) {
  std::map<std::pair<std::size_t, std::size_t>, Ends> pairs;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    for (std::size_t i = 0; i < program.devices[rank].instructions.size(); ++i) {
      const Instruction& instruction = program.devices[rank].instructions[i];
      const Rank peer = peer_of(instruction);
      if (peer.is_none()) continue;
      if (instruction.outputs.empty()) {
        pairs[{rank, peer.index()}].sends.push_back({rank, i});
      } else {
        pairs[{peer.index(), rank}].receives.push_back({rank, i});
      }
    }
  for (const auto& [ranks, ends] : pairs) {
    if (program.devices[ranks.first].is_elsewhere || program.devices[ranks.second].is_elsewhere)
      continue;
    const std::string& source = program.devices[ranks.first].device;
    for (std::size_t n = 0; n < std::min(ends.sends.size(), ends.receives.size()); ++n) {
      const Buffer& sent = sent_buffer(program, ends.sends[n]);
      const Buffer& received = sent_buffer(program, ends.receives[n]);
      if (sent.elements() == received.elements() && sent.dtype == received.dtype) continue;
      violations.add_instruction(
          program, ranks.second, ends.receives[n].instruction,
          fmt::format("number {} from {}: found {} {}, wanted {} {} as sent by ^{}", n, source,
                      received.elements(), dtype_name(received.dtype), sent.elements(),
                      dtype_name(sent.dtype), ends.sends[n].instruction));
      break;
    }
    if (ends.sends.size() != ends.receives.size())
      violations.add_device(program, ranks.second,
                            fmt::format("found {} receives from {}, wanted {} as {} sends",
                                        ends.receives.size(), source, ends.sends.size(), source));
  }
}

}  // namespace

Result<void> verify_program_at(const Program& program, const std::string& name,
                               const SourceLines& lines) {
  Violations violations(name, lines);
  if (program.devices.empty()) violations.add("has no devices");
  check_groups(program, violations);
  check_devices(program, violations);
  bool is_sound = violations.size() == 0;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    DeviceVerifier verifier(program, rank, violations);
    if (verifier.check_structure()) {
      verifier.check_flow();
    } else {
      is_sound = false;
    }
  }
  if (is_sound) {
    check_collectives(program, violations);
    check_sends(program, violations);
  }
  return violations.result();
}

Result<void> verify_program(const Program& program, const std::string& name) {
  return verify_program_at(program, name, {});
}

}  // namespace motley::program
