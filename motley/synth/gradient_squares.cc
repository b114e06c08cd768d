#include "motley/synth/gradient_squares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"

namespace motley::synth {
namespace {

using program::Argument;
using program::ArgumentList;
using program::DeviceProgram;
using program::Instruction;

constexpr const char* kSquaresLabel = "gradient squares";

/// What an update says of one gradient.
struct Updated {
  BufferId second_moment;  ///< of adam and adamw
  ArgumentList constants;  ///< beta2, eps of these
};

/// Gradients that are counted together: an instruction for each sort.
struct Counted {
  std::vector<Argument> gradients, moments;
  ArgumentList constants;
};

const ArgumentList* list_at(const Instruction& instruction, std::size_t position) {
  return position < instruction.arguments.size()
             ? std::get_if<ArgumentList>(&instruction.arguments[position].value)
             : nullptr;
}

BufferId buffer_of(const Argument& argument) {
  const auto* id = std::get_if<BufferId>(&argument.value);
  return id == nullptr ? BufferId() : *id;
}

tl::unexpected<Error> refuse(const DeviceProgram& program, const std::string& what) {
  return usage_error("synth.squares", fmt::format("{}: noise of gradients cannot be seen: {}",
                                                  program.device, what));
}

/// By gradient, of all updates (docs/formats/program.md has their arguments).
Result<std::map<BufferId, Updated>> find_updated(const DeviceProgram& program) {
  std::map<BufferId, Updated> found;
  for (const Instruction& each : program.instructions) {
    if (each.op != "motley::update" && each.op != "motley::direction") continue;
    const ArgumentList& gradients = *list_at(each, 2);
    if (!buffer_of(each.arguments.at(6)).is_none())
      return refuse(program, "gradients have a loss scale; leave --loss-scale out");
    const auto kind = std::get<std::string>(each.arguments.at(0).value);
    const bool has_moments = kind == "adam" || kind == "adamw";
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Updated& updated = found[buffer_of(gradients[i])];
      if (!has_moments) continue;
      updated.second_moment = buffer_of(list_at(each, 4)->at(i));
      const ArgumentList& constants = *list_at(each, 10);
      updated.constants = {constants.at(1), constants.at(2)};
    }
  }
  return found;
}

/// Buffers that depend on sums over all devices' samples in the backward pass, by id: what batch
/// norm over the global batch gives back, and all that is made of it.
std::vector<char> find_mixed(const DeviceProgram& program) {
  std::vector<char> mixed(program.buffers.size(), 0);
  const std::vector<BufferId> storages = program::storages_of(program);
  const auto is_mixed = [&](BufferId id) { return mixed[storages[id.index()].index()] != 0; };
  for (const Instruction& each : program.instructions) {
    if (each.lane != Lane::kCompute) continue;
    bool mixes = each.op == "motley::batch_norm_backward";
    program::for_each_buffer(each.arguments, [&](BufferId id) { mixes = mixes || is_mixed(id); });
    if (!mixes) continue;
    program::for_each_access(each, [&](BufferId id, program::Access access) {
      const BufferId root = storages[id.index()];
      if (access == program::Access::kWrite && !program::is_persistent(program.buffer(root).kind))
        mixed[root.index()] = 1;
    });
    for (const BufferId id : each.outputs) mixed[storages[id.index()].index()] = 1;
  }
  return mixed;
}

/// Square sums of gradients, in as many instructions as there are sorts of them.
class SquareWriter {
 public:
  explicit SquareWriter(DeviceProgram& program) : program_(program) {}

  void add(BufferId gradient, const Updated& updated) {
    const bool has_moments = !updated.second_moment.is_none();
    for (Counted& each : counted_)
      if (each.constants == updated.constants && each.moments.empty() != has_moments)
        return put(gradient, updated, each);
    put(gradient, updated, counted_.emplace_back(Counted{{}, {}, updated.constants}));
  }

  bool is_empty() const { return counted_.empty(); }

  /// The instructions; `sums` gets their results.
  std::vector<Instruction> write(std::vector<Argument>& sums) {
    std::vector<Instruction> written;
    for (const Counted& each : counted_) {
      program_.buffers.push_back({.kind = program::BufferKind::kTemporary,
                                  .dtype = DType::kF64,
                                  .shape = {static_cast<std::int64_t>(each.gradients.size())},
                                  .name = "",
                                  .view_of = {},
                                  .part = {}});
      Instruction& sum = written.emplace_back();
      sum.op = each.moments.empty() ? "motley::square_sums" : "motley::scaled_square_sums";
      sum.arguments = {{each.gradients}};
      if (!each.moments.empty()) {
        sum.arguments.push_back({each.moments});
        sum.arguments.insert(sum.arguments.end(), each.constants.begin(), each.constants.end());
      }
      sum.outputs = {BufferId(static_cast<std::int64_t>(program_.buffers.size()) - 1)};
      sum.label = kSquaresLabel;
      sums.push_back({sum.outputs[0]});
    }
    return written;
  }

 private:
  static void put(BufferId gradient, const Updated& updated, Counted& into) {
    into.gradients.push_back({gradient});
    if (!updated.second_moment.is_none()) into.moments.push_back({updated.second_moment});
  }
  DeviceProgram& program_;
  std::vector<Counted> counted_;
};

/// A bucket that all ranks sum: where it is packed and unpacked.
struct Bucket {
  std::optional<std::size_t> packed, unpacked;
};

/// By the flat tensor.
std::map<BufferId, Bucket> find_buckets(const program::Program& whole,
                                        const DeviceProgram& program) {
  std::map<BufferId, Bucket> buckets;
  for (const Instruction& each : program.instructions)
    if (each.op == "motley::all_reduce" &&
        whole.groups[each.group.index()].members.size() == whole.devices.size())
      buckets[buffer_of(each.arguments.at(0))] = {};
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& each = program.instructions[i];
    if (each.op == "motley::pack")
      if (const auto of = buckets.find(each.outputs[0]); of != buckets.end()) of->second.packed = i;
    if (each.op == "motley::unpack")
      if (const auto of = buckets.find(buffer_of(each.arguments[0])); of != buckets.end())
        of->second.unpacked = i;
  }
  return buckets;
}

/// Puts instructions before those that were there, by position, and waits along.
void insert(std::map<std::size_t, std::vector<Instruction>> before, DeviceProgram& program) {
  std::vector<InstructionId> places;
  std::vector<Instruction> made;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (const auto own = before.find(i); own != before.end())
      for (Instruction& each : own->second) made.push_back(std::move(each));
    places.emplace_back(static_cast<std::int64_t>(made.size()));
    made.push_back(std::move(program.instructions[i]));
    for (InstructionId& wait : made.back().waits) wait = places[wait.index()];
  }
  program.instructions = std::move(made);
}

Result<void> count_on(const program::Program& whole, DeviceProgram& program) {
  MOTLEY_ASSIGN(auto updated, find_updated(program));
  const std::vector<char> mixed = find_mixed(program);
  const std::vector<BufferId> storages = program::storages_of(program);
  std::map<std::size_t, std::vector<Instruction>> added;
  std::vector<Argument> own, sums;
  for (const auto& [flat, bucket] : find_buckets(whole, program)) {
    if (!bucket.packed || !bucket.unpacked) continue;
    const ArgumentList& terms = *list_at(program.instructions[*bucket.packed], 0);
    const std::vector<BufferId>& results = program.instructions[*bucket.unpacked].outputs;
    SquareWriter of_terms(program), of_sums(program);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto found = updated.find(results[i]);
      const BufferId root = storages[buffer_of(terms[i]).index()];
      if (found == updated.end() || mixed[root.index()] != 0) continue;
      of_terms.add(buffer_of(terms[i]), found->second);
      of_sums.add(results[i], found->second);
    }
    if (of_terms.is_empty()) continue;
    added[*bucket.packed] = of_terms.write(own);
    added[*bucket.unpacked + 1] = of_sums.write(sums);
  }
  const bool has_parts =
      std::any_of(program.instructions.begin(), program.instructions.end(),
                  [](const Instruction& each) { return each.op == program::kReduceScatter; });
  if (own.empty() || has_parts)
    return refuse(program,
                  "parameters or states are kept in parts, or no gradient is a sum over devices of "
                  "what their samples contribute by themselves");
  Instruction& report = program.instructions.back();
  if (report.op != "motley::report" || report.arguments.size() != 4)
    return refuse(program, "its last instruction is no report");
  for (const std::vector<Argument>* each : {&own, &sums})
    for (const Argument& argument : *each) report.frees.push_back(buffer_of(argument));
  report.arguments.push_back({own});
  report.arguments.push_back({sums});
  insert(std::move(added), program);
  return {};
}

}  // namespace

Result<program::Program> with_gradient_squares(program::Program program) {
  if (program.devices.size() < 2)
    return refuse(program.devices.at(0), "one device alone has nothing to compare its own with");
  for (DeviceProgram& device : program.devices) MOTLEY_RETURN_IF_ERROR(count_on(program, device));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, "a program that counts squares"));
  return program;
}

}  // namespace motley::synth
