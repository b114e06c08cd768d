#pragma once

#include <memory>

#include "motley/graph/short_graph.h"
#include "motley/program/program.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// What is searched in place of a graph of many identical layers: all of them get the same ways. A
/// graph with three of them, in which one stands for those that were left out, and one with two:
/// a step of all takes what the line through both says.
struct Depths {
  graph::ShortGraph searched, shorter;
};

/// Null where layers are few or not alike. O(graph).
std::shared_ptr<const Depths> find_depths(const graph::Graph& graph);

/// A sharding of the one short graph for another one of the same whole graph, with the ways of
/// exchanges as they are.
synth::Sharding restate(const synth::Sharding& sharding, const graph::ShortGraph& from,
                        const graph::ShortGraph& to);
/// The same for the whole graph.
synth::Sharding spread_over_whole(const synth::Sharding& sharding, const graph::ShortGraph& from);

/// Origins of instructions in the whole graph, by which costs know them.
void set_origins(const graph::ShortGraph& from, program::Program& program);

}  // namespace motley::search
