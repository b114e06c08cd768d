#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/plan/plan.h"
#include "motley/program/memory.h"
#include "motley/program/program.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Returns exchanges' load on links: bytes as in a ring, where members send to the next; time as in
/// the trace. Omits unused links and devices that the cluster lacks.
std::vector<report::LinkLoad> find_link_loads(const program::Program& program,
                                              const cluster::Cluster& cluster,
                                              const trace::Trace& trace);

/// Returns each layer's time by device, in the model's order, and how the program divides it: by
/// samples, by parameters, by stages, or not at all.
std::vector<report::LayerCut> find_layer_cuts(const program::Program& program,
                                              const trace::Trace& trace,
                                              const std::vector<report::StageRow>& stages);

/// The regions of a plan with stages; other plans have none.
std::vector<report::StageRow> find_stages(const plan::Plan& plan, const cluster::Cluster& cluster);

/// Adds layers and compute times from a program and its trace to the stages.
void add_stage_work(const plan::Plan& plan, const program::Program& program,
                    const trace::Trace& trace, std::vector<report::StageRow>& stages);

std::vector<std::pair<std::string, Bytes>> memory_parts(const program::MemoryPeak& peak);

/// Quotes words for a shell.
std::string print_command(const std::vector<std::string>& words);

}  // namespace motley::control
