#include "motley/synth/state/mirrored.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "motley/program/effects.h"
#include "motley/program/program_text.h"
#include "motley/program/state_names.h"

namespace motley::synth {
namespace {

using program::Argument;
using program::ArgumentList;
using program::Buffer;
using program::BufferKind;
using program::DeviceProgram;
using program::Instruction;

constexpr std::string_view kLabel = "mirror";  // prefix of their instructions' labels

/// Returns an operator's parallel lists, one entry per tensor; none if it is repeated as a whole.
std::vector<std::size_t> parallel_lists(const Instruction& instruction) {
  if (instruction.op == "motley::update" || instruction.op == "motley::direction")
    return {1, 2, 3, 4};
  if (instruction.op == "motley::assign" || instruction.op == "motley::average") return {0, 1};
  return {};
}

const ArgumentList& list_at(const Instruction& instruction, std::size_t position) {
  return std::get<ArgumentList>(instruction.arguments[position].value);
}

Argument list_of(const std::vector<BufferId>& buffers) {
  ArgumentList list;
  for (const BufferId id : buffers) list.push_back({id});
  return {std::move(list)};
}

/// A device's program with added instructions and buffers. Added ids follow the existing ones until
/// put_together() places them.
class GrowingProgram {
 public:
  explicit GrowingProgram(DeviceProgram& program)
      : program_(program),
        storages_(program::storages_of(program)),
        buffers_(program.buffers.size()) {}

  DeviceProgram& program() { return program_; }
  BufferId storage(BufferId id) const { return storages_[id.index()]; }
  std::size_t end() const { return program_.instructions.size(); }

  BufferId add(Buffer buffer) {
    program_.buffers.push_back(std::move(buffer));
    return BufferId(program_.buffers.size() - 1);
  }
  BufferId add_temporary(DType dtype, std::vector<std::int64_t> shape, BufferId view_of = {}) {
    return add({BufferKind::kTemporary, dtype, std::move(shape), "", view_of, {}});
  }
  /// Inserts before the instruction at `place`; at end(), after all.
  InstructionId insert(std::size_t place, Instruction instruction) {
    added_.emplace_back(place, std::move(instruction));
    return InstructionId(end() + added_.size() - 1);
  }

  /// Returns where persistent state is first written; end() if nowhere.
  std::size_t first_write(const std::function<bool(BufferId)>& is_meant) const {
    for (std::size_t i = 0; i < end(); ++i) {
      bool writes = false;
      program::for_each_access(program_.instructions[i], [&](BufferId id, program::Access access) {
        writes = writes || (access == program::Access::kWrite && is_meant(storage(id)));
      });
      if (writes) return i;
    }
    return end();
  }
  /// Returns the last compute instruction before a place, or none.
  InstructionId computed_before(std::size_t place) const {
    while (place > 0)
      if (program_.instructions[--place].lane == Lane::kCompute) return InstructionId(place);
    return {};
  }

  void put_together() {
    free_temporaries();
    std::vector<std::size_t> order(added_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return added_[a].first < added_[b].first;
    });
    std::vector<InstructionId> places(end() + added_.size());
    std::vector<Instruction> all;
    const auto place = [&](std::size_t id, Instruction& instruction) {
      places[id] = InstructionId(all.size());
      all.push_back(std::move(instruction));
    };
    auto next = order.begin();
    for (std::size_t i = 0; i <= end(); ++i) {
      for (; next != order.end() && added_[*next].first == i; ++next)
        place(end() + *next, added_[*next].second);
      if (i < end()) place(i, program_.instructions[i]);
    }
    for (Instruction& each : all) {
      for (InstructionId& wait : each.waits) wait = places[wait.index()];
      std::sort(each.waits.begin(), each.waits.end());
    }
    program_.instructions = std::move(all);
  }

 private:
  /// Frees added buffers at their last compute instruction, or else at their only send.
  void free_temporaries() {
    std::map<BufferId, std::size_t> computed;
    std::map<BufferId, std::vector<std::size_t>> sent;
    for (std::size_t i = 0; i < added_.size(); ++i) {
      const Instruction& each = added_[i].second;
      const auto use = [&](BufferId id) {
        const bool is_new =
            id.index() >= buffers_ && program_.buffer(id).kind == BufferKind::kTemporary;
        if (is_new && each.lane == Lane::kCompute) computed[id] = i;
        if (is_new && each.op == program::kSend) sent[id].push_back(i);
      };
      program::for_each_buffer(each.arguments, use);
      for (const BufferId id : each.outputs) use(id);
    }
    for (const auto& [id, at] : computed)
      if (!sent.contains(id)) added_[at].second.frees.push_back(id);
    for (const auto& [id, sends] : sent)
      if (sends.size() == 1) added_[sends[0]].second.frees.push_back(id);
  }

  DeviceProgram& program_;
  const std::vector<BufferId> storages_;  // of the original program
  const std::size_t buffers_;             // of the original program
  std::vector<std::pair<std::size_t, Instruction>> added_;
};

/// A holder's instruction that a keeper repeats.
struct Repeated {
  std::size_t at = 0;
  Instruction instruction;  // with the holder's buffers of mirrored tensors alone
};

/// Mirrors one device's buffers on another.
class Mirroring {
 public:
  Mirroring(std::size_t holder, GrowingProgram& from, std::size_t keeper, GrowingProgram& to,
            std::set<BufferId> mirrored, plan::Updates updates)
      : holder_(holder),
        keeper_(keeper),
        from_(from),
        to_(to),
        mirrored_(std::move(mirrored)),
        updates_(updates) {}

  /// Messages that the holder has already packed for another keeper.
  using Packs =
      std::map<std::pair<std::size_t, std::vector<BufferId>>, std::pair<BufferId, InstructionId>>;
  Result<void> write(Packs& packs) {
    MOTLEY_ASSIGN(const std::vector<Repeated> repeated, find_repeated());
    add_mirrors();
    std::vector<InstructionId> writers(from_.program().buffers.size());  // by storage
    auto next = repeated.begin();
    for (std::size_t i = 0; i < from_.end() && next != repeated.end(); ++i) {
      if (next->at == i) repeat(*next++, writers, packs);
      note_writes(i, from_.program().instructions[i], writers);
    }
    return {};
  }

 private:
  bool is_mirrored(BufferId id) const { return mirrored_.contains(from_.storage(id)); }
  bool is_kept(BufferId id) const {
    return program::is_persistent(from_.program().buffer(id).kind);
  }

  /// Finds the repeated instructions in order. Adds persistent state that they access to the
  /// mirrored buffers, until no more is found.
  Result<std::vector<Repeated>> find_repeated() {
    while (true) {
      const std::size_t before = mirrored_.size();
      std::vector<Repeated> found;
      for (std::size_t i = 0; i < from_.end(); ++i) {
        const Instruction& each = from_.program().instructions[i];
        bool writes = false, by_view = false;
        program::for_each_access(each, [&](BufferId id, program::Access access) {
          if (access == program::Access::kRead || !is_mirrored(id)) return;
          writes = true;
          by_view = by_view || from_.storage(id) != id;
        });
        if (!writes || each.lane != Lane::kCompute) continue;
        if (by_view)
          return usage_error("synth.mirrors",
                             fmt::format("{} ^{}: writes what is mirrored through a view",
                                         from_.program().device, i));
        Repeated& one = found.emplace_back(Repeated{i, restrict(each)});
        program::for_each_buffer(one.instruction.arguments, [&](BufferId id) {
          if (is_kept(id)) mirrored_.insert(id);
        });
      }
      drop_overwritten(found);
      if (mirrored_.size() == before) return found;
    }
  }

  /// Restricts an instruction to its tensors that are mirrored.
  Instruction restrict(const Instruction& instruction) const {
    Instruction made = instruction;
    made.waits.clear();
    made.frees.clear();
    const std::vector<std::size_t> lists = parallel_lists(instruction);
    if (lists.empty()) return made;
    const std::size_t count = list_at(instruction, lists[0]).size();
    std::vector<bool> stays(count, false);
    for (const std::size_t position : lists) {
      if (program::access_of(instruction, position) == program::Access::kRead) continue;
      const ArgumentList& list = list_at(instruction, position);
      for (std::size_t t = 0; t < list.size(); ++t)
        stays[t] = stays[t] || is_mirrored(std::get<BufferId>(list[t].value));
    }
    for (const std::size_t position : lists) {
      ArgumentList left;
      const ArgumentList& list = list_at(instruction, position);
      for (std::size_t t = 0; t < list.size(); ++t)
        if (stays[t]) left.push_back(list[t]);
      made.arguments[position] = {std::move(left)};
    }
    if (made.outputs.empty()) return made;
    made.outputs.clear();
    for (std::size_t t = 0; t < count; ++t)
      if (stays[t]) made.outputs.push_back(instruction.outputs[t]);
    return made;
  }

  /// Keeps only the last assignment of a model buffer, which is assigned once per micro-batch.
  void drop_overwritten(std::vector<Repeated>& repeated) const {
    std::set<BufferId> assigned;
    for (auto each = repeated.rbegin(); each != repeated.rend(); ++each) {
      Instruction& instruction = each->instruction;
      if (instruction.op != "motley::assign") continue;
      ArgumentList targets, values;
      for (std::size_t t = 0; t < list_at(instruction, 0).size(); ++t) {
        const Argument& target = list_at(instruction, 0)[t];
        const BufferId id = std::get<BufferId>(target.value);
        const bool is_model = from_.program().buffer(id).kind == BufferKind::kModelBuffer;
        if (is_model && !assigned.insert(id).second) continue;
        targets.push_back(target);
        values.push_back(list_at(instruction, 1)[t]);
      }
      instruction.arguments = {{std::move(targets)}, {std::move(values)}};
    }
    std::erase_if(repeated, [](const Repeated& each) {
      return each.instruction.op == "motley::assign" && list_at(each.instruction, 0).empty();
    });
  }

  void add_mirrors() {
    for (const BufferId id : mirrored_) {
      Buffer mirror = from_.program().buffer(id);
      mirror.kind = BufferKind::kMirror;
      mirror.name = fmt::format("{}{}/{}", program::kMirrorPrefix, holder_, mirror.name);
      if (!mirror.part) mirror.part = program::Part{1, 0, mirror.elements(), 1};
      mirror.part->is_copy = true;
      here_[id] = {to_.add(std::move(mirror)), {}};
    }
  }

  void note_writes(std::size_t i, const Instruction& instruction,
                   std::vector<InstructionId>& writers) const {
    const InstructionId self(i);
    program::for_each_access(instruction, [&](BufferId id, program::Access access) {
      if (access == program::Access::kWrite) writers[from_.storage(id).index()] = self;
    });
    for (const BufferId id : instruction.outputs)
      if (from_.program().buffer(id).view_of.is_none()) writers[id.index()] = self;
  }

  /// Does the keeper have the holder's buffer in the version before an instruction?
  bool is_here(BufferId id, const std::vector<InstructionId>& writers) const {
    const auto found = here_.find(id);
    return found != here_.end() &&
           (is_mirrored(id) || found->second.version == writers[from_.storage(id).index()]);
  }

  void repeat(const Repeated& repeated, std::vector<InstructionId>& writers, Packs& packs) {
    std::map<DType, std::vector<BufferId>> wanted;
    program::for_each_buffer(repeated.instruction.arguments, [&](BufferId id) {
      if (is_here(id, writers) || make_here(id, writers)) return;
      std::vector<BufferId>& all = wanted[from_.program().buffer(id).dtype];
      if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
    });
    for (const auto& [dtype, buffers] : wanted) receive(repeated, buffers, writers, packs);
    const InstructionId self(repeated.at);
    Instruction made = map_buffers(repeated.instruction);
    made.label = fmt::format("{} of {}: {}", kLabel, from_.program().device, made.label);
    if (updates_ == plan::Updates::kPortable && made.op == "motley::update")
      made.overload = from_.program().instructions[repeated.at].overload = "portable";
    for (std::size_t o = 0; o < made.outputs.size(); ++o) {
      const BufferId id = repeated.instruction.outputs[o];
      const Buffer& about = from_.program().buffer(id);
      made.outputs[o] = to_.add_temporary(about.dtype, about.shape);
      here_[id] = {made.outputs[o], self};
    }
    program::for_each_access(repeated.instruction, [&](BufferId id, program::Access access) {
      if (access == program::Access::kWrite) here_.at(id).version = self;
    });
    to_.insert(to_.end(), std::move(made));
  }

  Instruction map_buffers(Instruction instruction) const {
    map_list(instruction.arguments);
    return instruction;
  }
  void map_list(ArgumentList& arguments) const {
    for (Argument& argument : arguments) {
      if (auto* id = std::get_if<BufferId>(&argument.value)) *id = here_.at(*id).buffer;
      if (auto* list = std::get_if<ArgumentList>(&argument.value)) map_list(*list);
    }
  }

  /// Repeats the one instruction that makes a buffer from state identical on both, if possible.
  bool make_here(BufferId id, const std::vector<InstructionId>& writers) {
    const InstructionId writer = writers[from_.storage(id).index()];
    if (writer.is_none() || from_.storage(id) != id) return false;
    const Instruction& maker = from_.program().instructions[writer.index()];
    if (maker.lane != Lane::kCompute || maker.outputs != std::vector<BufferId>{id}) return false;
    std::map<BufferId, BufferId> same;
    std::size_t place = to_.end();
    bool may = true, reads = false;
    program::for_each_buffer(maker.arguments, [&](BufferId read) {
      reads = true;
      const auto own = find_same(read);
      if (!own || was_written(read, writer)) return void(may = false);
      same[read] = *own;
      place = std::min(place, to_.first_write([&](BufferId root) { return root == *own; }));
    });
    if (!may || !reads) return false;
    Instruction made = maker;
    made.waits.clear();
    made.frees.clear();
    for (Argument& argument : made.arguments)
      if (auto* read = std::get_if<BufferId>(&argument.value)) *read = same.at(*read);
    const Buffer& about = from_.program().buffer(id);
    made.outputs = {to_.add_temporary(about.dtype, about.shape)};
    made.label = fmt::format("{} of {}: {}", kLabel, from_.program().device, made.label);
    here_[id] = {made.outputs[0], writer};
    to_.insert(place, std::move(made));
    return true;
  }

  /// Returns the keeper's own buffer of the same rows.
  std::optional<BufferId> find_same(BufferId id) const {
    const Buffer& wanted = from_.program().buffer(id);
    if (!is_kept(id)) return std::nullopt;
    const auto& buffers = to_.program().buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].kind == wanted.kind && buffers[b].name == wanted.name &&
          buffers[b].shape == wanted.shape && rows_of(buffers[b]) == rows_of(wanted))
        return BufferId(b);
    return std::nullopt;
  }
  /// Is it written by an instruction or earlier?
  bool was_written(BufferId id, InstructionId by) const {
    return from_.first_write([&](BufferId root) { return root == id; }) <= by.index();
  }

  void receive(const Repeated& repeated, const std::vector<BufferId>& buffers,
               const std::vector<InstructionId>& writers, Packs& packs) {
    DeviceProgram& holder = from_.program();
    const DType dtype = holder.buffer(buffers[0]).dtype;
    std::int64_t elements = 0;
    for (const BufferId id : buffers) elements += holder.buffer(id).elements();
    const std::string label = fmt::format("{}: {}", kLabel, repeated.instruction.label);
    const auto [known, is_new] = packs.try_emplace({repeated.at, buffers});
    if (is_new) {
      Instruction pack{Lane::kCompute, "motley::pack"};
      pack.arguments = {list_of(buffers)};
      pack.outputs = {from_.add_temporary(dtype, {elements})};
      pack.waits = holder.instructions[repeated.at].waits;
      pack.label = label;
      known->second.first = pack.outputs[0];
      known->second.second = from_.insert(repeated.at, std::move(pack));
    }
    Instruction send{Lane::kPeer, std::string(program::kSend)};
    send.arguments = {{known->second.first}, {static_cast<std::int64_t>(keeper_)}};
    send.waits = {known->second.second};
    send.label = label;
    from_.insert(from_.end(), std::move(send));
    Instruction receive{Lane::kPeer, std::string(program::kReceive)};
    receive.arguments = {{static_cast<std::int64_t>(holder_)}};
    const BufferId flat = to_.add_temporary(dtype, {elements});
    receive.outputs = {flat};
    // Waits until the memory of the backward pass is free.
    const InstructionId after = to_.computed_before(to_.first_write(
        [&](BufferId root) { return program::is_persistent(to_.program().buffer(root).kind); }));
    if (!after.is_none()) receive.waits = {after};
    receive.label = label;
    Instruction unpack{Lane::kCompute, "motley::unpack"};
    unpack.waits = {to_.insert(to_.end(), std::move(receive))};
    unpack.arguments = {{flat}};
    unpack.label = label;
    for (const BufferId id : buffers) {
      const BufferId view = to_.add_temporary(dtype, from_.program().buffer(id).shape, flat);
      unpack.outputs.push_back(view);
      here_[id] = {view, writers[from_.storage(id).index()]};
    }
    to_.insert(to_.end(), std::move(unpack));
  }

  struct Here {
    BufferId buffer;        // on the keeper
    InstructionId version;  // the holder's instruction that wrote it
  };
  const std::size_t holder_, keeper_;
  GrowingProgram &from_, &to_;
  std::set<BufferId> mirrored_;    // of the holder
  std::map<BufferId, Here> here_;  // by the holder's buffer
  const plan::Updates updates_;
};

/// Returns the rank and id of the smallest buffer of a tensor among some ranks.
std::pair<std::size_t, BufferId> find_smallest(const program::Program& program,
                                               const std::vector<Rank>& ranks,
                                               const std::string& tensor) {
  std::pair<std::size_t, BufferId> best;
  std::int64_t least = -1;
  for (const Rank rank : ranks) {
    const auto& buffers = program.devices[rank.index()].buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (buffers[b].name != tensor || !program::is_persistent(buffers[b].kind)) continue;
      if (least >= 0 && buffers[b].elements() >= least) continue;
      least = buffers[b].elements();
      best = {rank.index(), BufferId(b)};
    }
  }
  return best;
}

}  // namespace

Result<program::Program> with_mirrors(program::Program program, const Mirrors& mirrors,
                                      plan::Updates updates) {
  std::map<std::pair<std::size_t, std::size_t>, std::set<BufferId>> wanted;  // holder, keeper
  for (const Mirror& mirror : mirrors.mirrors)
    for (const MirroredRows& rows : mirror.rows) {
      const auto [holder, buffer] = find_smallest(program, mirror.holders, rows.tensor);
      for (const Rank keeper : mirror.keepers) wanted[{holder, keeper.index()}].insert(buffer);
    }
  if (wanted.empty()) return program;
  std::deque<GrowingProgram> growing;
  for (DeviceProgram& device : program.devices) growing.emplace_back(device);
  std::map<std::size_t, Mirroring::Packs> packs;  // by holder
  for (const auto& [pair, buffers] : wanted) {
    const auto [holder, keeper] = pair;
    Mirroring mirroring(holder, growing[holder], keeper, growing[keeper], buffers, updates);
    MOTLEY_RETURN_IF_ERROR(mirroring.write(packs[holder]));
  }
  for (GrowingProgram& each : growing) each.put_together();
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, "a program with mirrors"));
  return program;
}

MirrorCost find_mirror_cost(const program::Program& program) {
  MirrorCost cost;
  for (auto* each : {&cost.kept, &cost.sent, &cost.received}) each->resize(program.devices.size());
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const DeviceProgram& device = program.devices[rank];
    for (const Buffer& buffer : device.buffers)
      if (buffer.kind == BufferKind::kMirror) cost.kept[rank] += buffer.bytes();
    for (const Instruction& each : device.instructions) {
      if (each.op != program::kReceive || !each.label.starts_with(kLabel)) continue;
      const Bytes bytes = program::exchanged_bytes(device, each);
      cost.received[rank] += bytes;
      cost.sent[program::peer_of(each).index()] += bytes;
    }
  }
  return cost;
}

}  // namespace motley::synth
