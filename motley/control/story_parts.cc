#include "motley/control/story_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "motley/base/text.h"
#include "motley/cost/links/network.h"
#include "motley/plan/shares.h"
#include "motley/report/page/layer_names.h"

namespace motley::control {
namespace {

/// What a ring sends from one member to the next of so many, beside what the member puts in.
double ring_factor(const std::string& op, std::size_t members) {
  const auto n = static_cast<double>(members);
  if (op.starts_with("motley::all_reduce")) return 2 * (n - 1) / n;
  if (op.starts_with("motley::all_gather")) return n - 1;
  return (n - 1) / n;
}

/// Who an instruction of a rank sends to, and how much. -1: to nobody.
struct Sent {
  int to = -1;
  double bytes = 0;
};

Sent sent_by(const program::Program& program, std::size_t rank,
             const program::Instruction& instruction) {
  const program::DeviceProgram& device = program.devices[rank];
  if (!program::is_exchange(instruction) || instruction.op == program::kReceive) return {};
  const auto bytes = static_cast<double>(program::exchanged_bytes(device, instruction).value);
  if (const Rank peer = program::peer_of(instruction); !peer.is_none()) return {peer.value, bytes};
  if (instruction.group.is_none()) return {};
  const std::vector<Rank>& members = program.groups[instruction.group.index()].members;
  const auto own = std::find(members.begin(), members.end(), Rank(static_cast<int>(rank)));
  if (own == members.end() || members.size() < 2) return {};
  const Rank next = own + 1 == members.end() ? members.front() : *(own + 1);
  return {next.value, bytes * ring_factor(instruction.op, members.size())};
}

/// What is known of a link while the ranks are gone through.
struct Crossing {
  double bytes = 0;
  std::vector<std::pair<trace::Nanoseconds, trace::Nanoseconds>> busy;
};

trace::Nanoseconds united(std::vector<std::pair<trace::Nanoseconds, trace::Nanoseconds>> spans) {
  std::sort(spans.begin(), spans.end());
  trace::Nanoseconds total = 0, until = 0;
  for (const auto& [begin, end] : spans) {
    total += std::max<trace::Nanoseconds>(0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  return total;
}

/// Of each device of a trace the spans of its exchanges, by instruction.
using Spans =
    std::map<std::int32_t, std::vector<std::pair<trace::Nanoseconds, trace::Nanoseconds>>>;
std::map<std::string, Spans> spans_of_exchanges(const trace::Trace& trace) {
  std::map<std::string, Spans> spans;
  for (const trace::Interval& each : trace.intervals)
    if (each.lane != Lane::kCompute)
      spans[trace.devices[static_cast<std::size_t>(each.device)]][each.instruction.value]
          .emplace_back(each.begin, each.end);
  return spans;
}

double traced_time(const trace::Trace& trace) {
  if (trace.steps.empty()) return 0;
  trace::Nanoseconds begin = trace.steps[0].begin, end = begin;
  for (const trace::StepMark& mark : trace.steps) {
    begin = std::min(begin, mark.begin);
    end = std::max(end, mark.end);
  }
  return static_cast<double>(end - begin);
}

}  // namespace

std::vector<report::LinkLoad> find_link_loads(const program::Program& program,
                                              const cluster::Cluster& cluster,
                                              const trace::Trace& trace) {
  const cost::Network network(cluster);
  std::vector<Crossing> crossings(network.links().size());
  std::vector<DeviceId> ids;
  for (const program::DeviceProgram& device : program.devices)
    ids.push_back(cluster::find_device(cluster, device.device).value_or(DeviceId()));
  auto spans = spans_of_exchanges(trace);
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const program::DeviceProgram& device = program.devices[rank];
    Spans& own = spans[device.device];
    for (std::size_t i = 0; i < device.instructions.size(); ++i) {
      const Sent sent = sent_by(program, rank, device.instructions[i]);
      if (sent.to < 0 || ids[rank].is_none() || ids[static_cast<std::size_t>(sent.to)].is_none())
        continue;
      for (const std::int32_t link :
           network.path(ids[rank], ids[static_cast<std::size_t>(sent.to)]).links) {
        Crossing& crossing = crossings[static_cast<std::size_t>(link)];
        crossing.bytes += sent.bytes;
        const auto& busy = own[static_cast<std::int32_t>(i)];
        crossing.busy.insert(crossing.busy.end(), busy.begin(), busy.end());
      }
    }
  }
  const double time = traced_time(trace);
  std::vector<report::LinkLoad> loads;
  for (std::size_t i = 0; i < crossings.size(); ++i)
    if (crossings[i].bytes > 0 && time > 0)
      loads.push_back({network.links()[i].name, network.links()[i].capacity,
                       Bytes(static_cast<std::int64_t>(crossings[i].bytes)),
                       static_cast<double>(united(std::move(crossings[i].busy))) / time});
  return loads;
}

namespace {

/// The devices that have a part of the layer's parameters, and not all of it.
std::map<std::string, int> parts_by_layer(const program::Program& program) {
  std::map<std::string, int> parts;
  for (const program::DeviceProgram& device : program.devices) {
    std::map<std::string, bool> has_part;
    for (const program::Buffer& buffer : device.buffers)
      if (buffer.kind == program::BufferKind::kParameter && buffer.part)
        has_part[report::layer_of(". " + buffer.name)] = true;
    for (const auto& [layer, has] : has_part) ++parts[layer];
  }
  return parts;
}

std::string cut_text(const program::Program& program, const trace::Trace& trace,
                     const std::vector<double>& seconds, int parts) {
  std::vector<std::int64_t> samples;
  std::string only;
  for (std::size_t d = 0; d < seconds.size(); ++d) {
    if (seconds[d] <= 0) continue;
    only = trace.devices[d];
    for (const program::DeviceProgram& device : program.devices)
      if (device.device == only) samples.push_back(device.samples);
  }
  if (samples.size() < 2) return "on " + only + " alone";
  if (parts > 1) return fmt::format("weights in {} parts", parts);
  return "samples " + plan::samples_text(samples);
}

}  // namespace

std::vector<report::LayerCut> find_layer_cuts(const program::Program& program,
                                              const trace::Trace& trace) {
  std::vector<std::int64_t> steps(trace.devices.size(), 0);
  for (const trace::StepMark& mark : trace.steps) ++steps[static_cast<std::size_t>(mark.device)];
  std::map<std::string, std::size_t> known;
  std::vector<report::LayerCut> layers;
  for (const trace::Interval& each : trace.intervals) {
    const auto device = static_cast<std::size_t>(each.device);
    if (each.lane != Lane::kCompute || each.bytes > 0 || steps[device] == 0) continue;
    const std::string name = report::layer_of(trace.names[device][each.instruction.index()]);
    const auto [at, is_new] = known.emplace(name, layers.size());
    if (is_new) layers.push_back({name, "", std::vector<double>(trace.devices.size(), 0)});
    layers[at->second].compute_s[device] +=
        1e-9 * static_cast<double>(each.end - each.begin) / static_cast<double>(steps[device]);
  }
  const std::map<std::string, int> parts = parts_by_layer(program);
  for (report::LayerCut& each : layers) {
    const auto found = parts.find(each.layer);
    each.cut = cut_text(program, trace, each.compute_s, found == parts.end() ? 0 : found->second);
  }
  return layers;
}

std::vector<report::StageRow> find_stages(const plan::Plan& plan, const cluster::Cluster& cluster) {
  std::vector<report::StageRow> rows;
  if (!plan::has_stages(plan)) return rows;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (std::size_t g = 0; g < plan.replicas[r].regions.size(); ++g) {
      const plan::Replica& replica = plan.replicas[r];
      report::StageRow row{static_cast<std::int64_t>(r),
                           static_cast<std::int64_t>(g),
                           {},
                           plan::count_operators(replica.regions[g].covers),
                           replica.samples,
                           replica.micro_batches};
      for (const DeviceId id : replica.regions[g].devices)
        row.devices.push_back(cluster.device(id).name);
      rows.push_back(std::move(row));
    }
  return rows;
}

std::vector<std::pair<std::string, Bytes>> memory_parts(const program::MemoryPeak& peak) {
  std::vector<std::pair<std::string, Bytes>> parts{
      {"parameters", peak.parameters}, {"states", peak.states},
      {"buffers", peak.buffers},       {"mirrors", peak.mirrors},
      {"inputs", peak.inputs},         {"activations", peak.activations},
      {"gradients", peak.gradients},   {"exchange", peak.exchange},
      {"scratch", peak.scratch}};
  std::erase_if(parts, [](const auto& part) { return part.second.value <= 0; });
  return parts;
}

std::string print_command(const std::vector<std::string>& words) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./=:,+@%").find(c) != std::string_view::npos;
  };
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) {
      quoted.push_back(word);
      continue;
    }
    std::string inside;
    for (const char c : word) inside += c == '\'' ? "'\\''" : std::string(1, c);
    quoted.push_back("'" + inside + "'");
  }
  return join(quoted, " ");
}

}  // namespace motley::control
