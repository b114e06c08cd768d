#pragma once

#include <memory>

#include "motley/graph/short_graph.h"
#include "motley/program/program.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// Short graphs searched instead of one of many identical layers, which all get the same ways. One
/// has three layers, one of which represents those left out, the other two. The whole step is
/// extrapolated from both.
struct Depths {
  graph::ShortGraph searched, shorter;
};

/// Returns null if there are few layers, or they differ. O(graph).
std::shared_ptr<const Depths> find_depths(const graph::Graph& graph);

/// Translates a sharding between short graphs of the same whole graph; exchange ways stay.
synth::Sharding restate(const synth::Sharding& sharding, const graph::ShortGraph& from,
                        const graph::ShortGraph& to);
/// Translates a sharding to the whole graph.
synth::Sharding spread_over_whole(const synth::Sharding& sharding, const graph::ShortGraph& from);

/// Sets instructions' origins to those of the whole graph, which costs use.
void set_origins(const graph::ShortGraph& from, program::Program& program);

}  // namespace motley::search
