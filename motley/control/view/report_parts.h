#pragma once

#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/plan/plan.h"
#include "motley/program/memory.h"
#include "motley/program/program.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// What the exchanges of a program put on the links of its cluster: bytes as if each were done
/// around the ring of its members, each member sending to the next; time as the trace has it. Links
/// that nothing crosses are left out. Devices that the cluster has not are skipped.
std::vector<report::LinkLoad> find_link_loads(const program::Program& program,
                                              const cluster::Cluster& cluster,
                                              const trace::Trace& trace);

/// What each layer takes on each device of a trace, in the model's order, and how the program cuts
/// it: by samples, by its parameters, by stages, or on one device alone.
std::vector<report::LayerCut> find_layer_cuts(const program::Program& program,
                                              const trace::Trace& trace,
                                              const std::vector<report::StageRow>& stages);

/// The regions of a plan with stages; of other plans none.
std::vector<report::StageRow> find_stages(const plan::Plan& plan, const cluster::Cluster& cluster);

/// What a program and its trace say of these: layers and compute.
void add_stage_work(const plan::Plan& plan, const program::Program& program,
                    const trace::Trace& trace, std::vector<report::StageRow>& stages);

/// The parts of a peak that are above 0, by name.
std::vector<std::pair<std::string, Bytes>> memory_parts(const program::MemoryPeak& peak);

/// A command line that a shell takes as these words.
std::string print_command(const std::vector<std::string>& words);

}  // namespace motley::control
