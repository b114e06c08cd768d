#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "motley/base/arguments.h"
#include "motley/base/dtype.h"
#include "motley/base/ids.h"
#include "motley/base/lane.h"
#include "motley/base/units.h"

namespace motley::program {

/// The purpose of a buffer. All but the last three live from step to step. A mirror is a copy of
/// another device's data that outlives that device (synth/state/mirrored.h). What is carried is
/// made in one step and used and freed in the next one, before it is made again
/// (synth/state/carried.h).
enum class BufferKind {
  kParameter,
  kState,
  kModelBuffer,
  kConstant,
  kMirror,
  kInput,
  kTemporary,
  kCarried
};

/// The part of a tensor that a device keeps: rows from `begin` on of [before, extent, after]. The
/// buffer's shape gives their number. A device may keep all rows while others keep none.
struct Part {
  std::int64_t before = 1, begin = 0, extent = 1, after = 1;
  bool is_copy = false;  ///< another device has the same rows and saves them
  bool operator==(const Part&) const = default;
};

/// A tensor on one device, with concrete shape.
struct Buffer {
  BufferKind kind = BufferKind::kTemporary;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::string name;  ///< state_dict name, "NAME/momentum", "NAME/exp_avg", ..., input name; else ""
  BufferId view_of;  ///< this buffer is a view of that one's memory; none: it owns its memory
  std::optional<Part> part;  ///< of parameters and states that devices share; none: whole
  bool operator==(const Buffer&) const = default;

  std::int64_t elements() const;
  /// Returns the name of the whole tensor; for a mirror, that of its original.
  std::string tensor() const;
  Bytes bytes() const;  ///< whole size; a view's memory is counted at its root
};

struct Argument;
using ArgumentList = std::vector<Argument>;
/// A number that entered the arithmetic through number(EXPR). Its value does not affect the cost.
struct NumberArgument {
  std::variant<std::int64_t, double> value;
  bool operator==(const NumberArgument&) const;  // NaN equals NaN
};
struct Argument {
  std::variant<NoneArgument, BufferId, bool, std::int64_t, double, std::string, NumberArgument,
               KeywordArgument, ComplexArgument, ArgumentList>
      value;
  bool operator==(const Argument&) const;  // NaN equals NaN
};

/// One instruction. `op` is an ATen operator ("aten::mm", run through the dispatcher) or one of
/// ours ("motley::pack", ...), which docs/formats/program.md lists with their arguments.
struct Instruction {
  Lane lane = Lane::kCompute;
  std::string op;        ///< "aten::mm", "motley::pack"
  std::string overload;  ///< "" for default
  ArgumentList arguments;
  std::vector<BufferId> outputs;
  bool returns_list = false;
  GroupId group;                     ///< of a collective; else none
  std::vector<InstructionId> waits;  ///< must have finished; of other strands (strands.h)
  std::vector<BufferId> frees;       ///< temporaries not used after this instruction
  OpId origin;              ///< graph operator that it came from; none for synthesised ones
  std::string label;        ///< module path or purpose ("bucket 2"), for people
  bool is_carried = false;  ///< of the step before, which it ends; nothing if there is none
  bool operator==(const Instruction&) const = default;

  std::string full_name() const;  ///< "aten::add.Tensor"
};

/// Ranks that communicate, in order.
struct Group {
  std::vector<Rank> members;
  bool operator==(const Group&) const = default;
};

/// What one device does in one step. `waits` order lanes that use memory that one of them writes.
struct DeviceProgram {
  std::string device;             ///< "a:0"
  std::int64_t samples = 0;       ///< of each global batch; each micro-batch has the same number
  std::int64_t first_sample = 0;  ///< position of its first sample in a micro-batch
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  bool is_elsewhere = false;  ///< its instructions are not in this program (own_program)
  bool operator==(const DeviceProgram&) const = default;

  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
};

/// One training step on all devices, which engines execute. The position in `devices` is the rank.
struct Program {
  std::string model_hash, plan_hash;
  std::int64_t global_batch = 0;
  std::int64_t micro_batches = 1;  ///< equal consecutive parts of a global batch
  std::vector<Group> groups;
  std::vector<DeviceProgram> devices;
  bool operator==(const Program&) const = default;

  /// Returns the positions of a device's samples in the global batch, in loading order.
  std::vector<std::int64_t> samples_of(const DeviceProgram& device) const;
};

/// Returns the program with only one rank's instructions; others keep name and samples.
Program own_program(const Program& program, Rank rank);

inline constexpr std::string_view kSend = "motley::send";
inline constexpr std::string_view kReceive = "motley::receive";

/// Labels of a step's exchanges of gradients, "bucket 3", and of owners' new rows, "updated bucket
/// 3".
inline constexpr std::string_view kBucketLabel = "bucket ", kUpdatedLabel = "updated ";

/// Returns the rank at the other end of a "motley::send" or "motley::receive"; else none.
Rank peer_of(const Instruction& instruction);

/// Returns whether the instruction is a collective, a send or a receive.
bool is_exchange(const Instruction& instruction);

/// Returns whether any of the device's instructions is an exchange.
bool is_in_group(const DeviceProgram& program);

/// Returns the bytes that this device gives to an exchange or receives: of the first buffer.
Bytes exchanged_bytes(const DeviceProgram& program, const Instruction& instruction);

/// Returns the root of a chain of views.
BufferId storage_of(const DeviceProgram& program, BufferId buffer);

/// Calls `visit(BufferId)` for every buffer among the arguments, lists included, in order.
template <typename Visit>
void for_each_buffer(const ArgumentList& arguments, const Visit& visit) {
  for (const Argument& argument : arguments) {
    if (const auto* id = std::get_if<BufferId>(&argument.value)) visit(*id);
    if (const auto* list = std::get_if<ArgumentList>(&argument.value))
      for_each_buffer(*list, visit);
  }
}

}  // namespace motley::program
