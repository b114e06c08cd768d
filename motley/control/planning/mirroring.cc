#include "motley/control/planning/mirroring.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/text.h"
#include "motley/cost/device_keys.h"
#include "motley/program/memory.h"
#include "motley/synth/state/commit.h"
#include "motley/synth/state/mirrored.h"

namespace motley::control {
namespace {

// Attempts with fewer mirrors, when these and what they receive in a step do not fit.
constexpr int kTries = 4;

std::vector<Bytes> find_room(const Inputs& inputs, const std::vector<plan::Member>& members,
                             const program::Program& program) {
  constexpr Bytes kEnough(std::int64_t{1} << 60);
  std::vector<Bytes> room;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const cluster::Device& device = inputs.cluster.device(members[rank].device);
    const Bytes tensors = program::find_memory_peak(program.devices[rank]).total;
    const auto most = device.room();
    room.push_back(most ? *most - cost::with_framework(device, tensors) : kEnough);
  }
  return room;
}

std::vector<std::string> hosts_of(const Inputs& inputs, const std::vector<plan::Member>& members) {
  std::vector<std::string> hosts;
  for (const plan::Member& member : members)
    hosts.push_back(inputs.cluster.node(inputs.cluster.device(member.device).node).name);
  return hosts;
}

/// Does a device hold state that no other device has?
bool is_sole_holder(const program::Program& program, std::size_t rank) {
  if (program.devices.size() == 1) return true;
  const auto is_kept = [](const program::Buffer& buffer) {
    return buffer.part && buffer.kind != program::BufferKind::kConstant &&
           buffer.kind != program::BufferKind::kMirror;
  };
  for (const program::Buffer& buffer : program.devices[rank].buffers) {
    if (!is_kept(buffer)) continue;
    bool has_copy = false;
    for (std::size_t other = 0; other < program.devices.size(); ++other)
      for (const program::Buffer& each : program.devices[other].buffers)
        has_copy = has_copy || (other != rank && each.tensor() == buffer.name &&
                                (!each.part || (each.part->begin == buffer.part->begin &&
                                                each.shape == buffer.shape)));
    if (!has_copy) return true;
  }
  return false;
}

}  // namespace

Result<program::Program> add_mirrors(const Inputs& inputs, const plan::Plan& plan,
                                     program::Program program) {
  const std::vector<plan::Member> members = plan::members(plan);
  const int survive = std::min(inputs.survive, static_cast<int>(members.size()) - 1);
  if (survive <= 0) return program;
  synth::MirrorOptions options{survive, hosts_of(inputs, members)};
  MOTLEY_ASSIGN(const program::Program bare, synth::with_commit(program));
  options.room = find_room(inputs, members, bare);
  for (Bytes& room : options.room) room = std::max(room, Bytes(0));
  for (int i = 0; i < kTries; ++i) {
    MOTLEY_ASSIGN(const synth::Mirrors mirrors, synth::choose_mirrors(program, options));
    if (mirrors.mirrors.empty()) return program;
    MOTLEY_ASSIGN(program::Program made, synth::with_mirrors(program, mirrors, plan.updates));
    MOTLEY_ASSIGN(const program::Program whole, synth::with_commit(made));
    const std::vector<Bytes> left = find_room(inputs, members, whole);
    bool fits = true;
    for (std::size_t rank = 0; rank < left.size(); ++rank) {
      if (left[rank] >= Bytes(0)) continue;
      fits = false;
      options.room[rank] = std::max(Bytes(0), options.room[rank] + left[rank]);
    }
    if (fits) return made;
  }
  return program;
}

bool outlives_losses(const program::Program& program, int survive) {
  if (survive <= 0) return true;
  const auto found = synth::choose_mirrors(
      program, {.survive = survive,
                .hosts = {},
                .room = std::vector<Bytes>(program.devices.size(), Bytes(0))});
  return found && found->survives_devices >= survive;
}

Result<bool> outlives_losses(const Inputs& inputs, const Planned& planned, int survive) {
  const plan::Plan& plan = planned.plan;
  if (plan::members(plan).size() <= static_cast<std::size_t>(survive)) return false;
  if (!plan::splits_operators(plan) && !plan::has_stages(plan)) return true;
  if (planned.program) return outlives_losses(*planned.program, survive);
  MOTLEY_ASSIGN(const Planned made, lower_plan(inputs, plan));
  return outlives_losses(*made.program, survive);
}

MirrorPrice find_mirror_price(const program::Program& program) {
  const synth::MirrorCost cost = synth::find_mirror_cost(program);
  MirrorPrice price{.devices = static_cast<int>(cost.kept.size())};
  for (std::size_t rank = 0; rank < cost.kept.size(); ++rank) {
    price.kept += cost.kept[rank];
    price.sent += cost.sent[rank];
    price.keepers += cost.kept[rank] > Bytes(0) ? 1 : 0;
  }
  while (price.survives < price.devices && outlives_losses(program, price.survives + 1))
    ++price.survives;
  return price;
}

std::string print_mirror_price(const MirrorPrice& price) {
  if (price.keepers == 0)
    return fmt::format("mirrors: none; any {} of {} devices may be lost", price.survives,
                       price.devices);
  return fmt::format("mirrors: {} on {} devices, {} a step; any {} of {} may be lost",
                     format_bytes(price.kept), price.keepers, format_bytes(price.sent),
                     price.survives, price.devices);
}

std::string describe_losses(const program::Program& program) {
  std::vector<std::string> sole;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    if (is_sole_holder(program, rank)) sole.push_back(program.devices[rank].device);
  if (!sole.empty())
    return fmt::format(
        "if {} is lost, training goes on from the last checkpoint: nobody else has {} of the model "
        "(--checkpoint-every)",
        join(sole, " or "), sole.size() > 1 ? "their parts" : "its part");
  const MirrorPrice price = find_mirror_price(program);
  return price.keepers == 0 ? "" : print_mirror_price(price);
}

}  // namespace motley::control
