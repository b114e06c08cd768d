#include "motley/synth/noise/gradient_squares.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/synth/noise/piece_squares.h"
#include "motley/synth/noise/square_writer.h"

namespace motley::synth {
namespace {

using program::ArgumentList;
using program::DeviceProgram;
using program::Instruction;

/// Finds, by buffer id, the buffers that depend on sums over all devices' samples in the backward
/// pass: the results of global batch norm's backward pass and everything computed from them.
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

/// The instructions that pack and unpack a bucket that all ranks sum.
struct SummedBucket {
  std::optional<std::size_t> packed, unpacked;
};

/// Finds summed buckets, by flat tensor.
std::map<BufferId, SummedBucket> find_buckets(const program::Program& whole,
                                              const DeviceProgram& program) {
  std::map<BufferId, SummedBucket> buckets;
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

Result<void> count_on(const program::Program& whole, DeviceProgram& program) {
  MOTLEY_ASSIGN(auto updated, find_updated(program));
  const std::vector<char> mixed = find_mixed(program);
  const std::vector<BufferId> storages = program::storages_of(program);
  std::map<std::size_t, std::vector<Instruction>> added;
  ArgumentList own, sums;
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
    return refuse_squares(program,
                          "parameters or states are kept in parts, or no gradient is a sum over "
                          "devices of what their samples contribute by themselves");
  MOTLEY_RETURN_IF_ERROR(
      report_squares({{std::move(own)}, std::move(sums), {program.samples}}, program));
  insert_before(std::move(added), program);
  return {};
}

/// `pieces`: samples of each micro-batch, used for a device alone.
Result<program::Program> count(program::Program program, std::vector<std::int64_t> pieces) {
  if (program.devices.size() == 1)
    MOTLEY_RETURN_IF_ERROR(count_pieces(std::move(pieces), program.devices.front()));
  for (DeviceProgram& device : program.devices)
    if (program.devices.size() > 1) MOTLEY_RETURN_IF_ERROR(count_on(program, device));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, "a program that counts squares"));
  return program;
}

}  // namespace

Result<program::Program> with_gradient_squares(program::Program program, const plan::Plan& plan) {
  std::vector<std::int64_t> pieces;
  for (const plan::Stretch& each : plan::find_stretches(plan.replicas.front(), 0))
    pieces.push_back(each.count);
  if (program.devices.size() == 1 && pieces.size() < 2)
    return refuse_squares(program.devices.front(),
                          "one device alone compares micro-batches, there is one");
  return count(std::move(program), std::move(pieces));
}

program::Program with_timed_squares(const program::Program& program) {
  return count(program, {program.devices.front().samples}).value_or(program);
}

}  // namespace motley::synth
