#include "motley/search/model_stages/layer_holds.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "motley/program/effects.h"
#include "motley/synth/ranks/lower_rank.h"

namespace motley::search {

using program::BufferKind;
using program::Instruction;

std::vector<LayerPlace> find_layer_places(const program::DeviceProgram& program,
                                          const graph::Graph& graph, const graph::LayerChain& chain,
                                          const std::vector<char>& once) {
  std::size_t last = 0;  // last instruction of the graph's operators
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if (!program.instructions[i].origin.is_none()) last = i;
  std::vector<LayerPlace> places;
  LayerPlace now;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!instruction.origin.is_none()) {
      now.op = instruction.origin;
      now.layer = chain.of_op[instruction.origin.index()];
      now.is_forward = graph.op(instruction.origin).direction == graph::Direction::kForward;
      now.is_once = once[instruction.origin.index()] != 0;
    }
    places.push_back(now);
    if (instruction.origin.is_none() && (i > last || synth::is_of_bucket(instruction)))
      places.back().is_once = true;
  }
  return places;
}

bool is_again(const LayerPlace& place, const std::vector<char>& done_again) {
  return !place.is_once && !place.op.is_none() && done_again[place.op.index()] != 0;
}

namespace {

/// The lifetime of a root buffer.
struct Life {
  std::size_t made = 0, last = 0;     // instruction indices
  std::size_t last_forward = 0;       // last use in the forward pass
  bool is_made = false;               // by an instruction
  bool is_once = false;               // a step has it once
  std::set<std::size_t> readers;      // by layer
  std::set<std::size_t> in_backward;  // layers whose backward pass reads it
};

/// Returns, by group, the first instruction of its backward pass.
std::vector<std::size_t> find_turns(const std::vector<LayerPlace>& places,
                                    const std::vector<std::size_t>& groups) {
  std::vector<std::size_t> turns(groups.back() + 1, places.size());
  for (std::size_t i = places.size(); i-- > 0;)
    if (!places[i].is_forward && !places[i].is_once) turns[groups[places[i].layer]] = i;
  return turns;
}

std::vector<Life> find_lives(const program::DeviceProgram& program,
                             const std::vector<LayerPlace>& places,
                             const std::vector<char>& done_again) {
  const std::vector<BufferId> roots = program::storages_of(program);
  std::vector<Life> lives(program.buffers.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const LayerPlace& place = places[i];
    program::for_each_buffer(instruction.arguments, [&](BufferId id) {
      Life& life = lives[roots[id.index()].index()];
      life.last = i;
      life.is_once = life.is_once || (place.is_once && life.is_made);
      if (place.is_once) return;
      life.readers.insert(place.layer);
      if (place.is_forward) life.last_forward = i;
      if (!place.is_forward || is_again(place, done_again)) life.in_backward.insert(place.layer);
    });
    for (const BufferId id : instruction.outputs) {
      Life& life = lives[roots[id.index()].index()];
      if (!life.is_made) life.made = i;
      life.is_made = true;
      life.is_once = life.is_once || place.is_once;
      life.last = std::max(life.last, i);
    }
  }
  return lives;
}

}  // namespace

LayerHolds find_layer_holds(const program::DeviceProgram& program,
                            const std::vector<LayerPlace>& places,
                            const std::vector<char>& done_again,
                            const std::vector<std::size_t>& groups,
                            const std::vector<Bytes>& scratch) {
  const std::size_t layers = groups.size();
  LayerHolds holds{std::vector<double>(layers, 0), std::vector<double>(layers, 0),
                   std::vector<double>(layers, 0)};
  const std::vector<Life> lives = find_lives(program, places, done_again);
  std::map<std::string, std::size_t> layer_of;  // by parameter name
  for (std::size_t b = 0; b < lives.size(); ++b)
    if (program.buffers[b].kind == BufferKind::kParameter && !lives[b].readers.empty())
      layer_of.emplace(program.buffers[b].name, *lives[b].readers.begin());
  const std::vector<std::size_t> turns = find_turns(places, groups);
  // All other bytes made less those freed, by instruction.
  std::vector<double> comes(program.instructions.size() + 1, 0);
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const program::Buffer& buffer = program.buffers[b];
    if (!buffer.view_of.is_none()) continue;
    const auto bytes = static_cast<double>(buffer.bytes().value);
    const Life& life = lives[b];
    if (buffer.kind != BufferKind::kTemporary) {
      const auto known = layer_of.find(buffer.name.substr(0, buffer.name.find('/')));
      if (known != layer_of.end()) holds.fixed[known->second] += bytes;
      continue;
    }
    if (!life.is_made) continue;
    const LayerPlace& place = places[life.made];
    const auto is_there = [&](std::size_t from, std::size_t to) {
      comes[from] += bytes;
      comes[std::max(from, to) + 1] -= bytes;
    };
    if (life.is_once) {
      // A gradient, or a gathered parameter. A buffer used only by exchanges is short-lived.
      if (!place.is_once || !life.readers.empty())
        holds.fixed[place.is_once ? *life.readers.begin() : place.layer] += bytes;
    } else if (is_again(place, done_again) && !life.in_backward.empty()) {
      is_there(life.made, life.last_forward);
      if (const std::size_t turn = turns[groups[place.layer]]; life.last > turn)
        is_there(turn, life.last);
    } else if (place.is_forward && !life.in_backward.empty()) {
      for (auto at = life.in_backward.begin(); at != life.in_backward.end(); ++at)
        if (const auto next = std::next(at);
            next == life.in_backward.end() || groups[*next] != groups[*at])
          holds.kept[*at] += bytes;
    } else {
      is_there(life.made, life.last);
    }
  }
  double now = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    now += comes[i];
    if (places[i].is_once) continue;
    double& most = holds.workspace[places[i].layer];
    most = std::max(most, now + (scratch.empty() ? 0 : static_cast<double>(scratch[i].value)));
  }
  return holds;
}

}  // namespace motley::search
