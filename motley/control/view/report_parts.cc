#include "motley/control/view/report_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "motley/base/text.h"
#include "motley/control/view/micro_batches.h"
#include "motley/cost/links/network.h"
#include "motley/plan/shares.h"
#include "motley/report/page/layer_names.h"

namespace motley::control {
namespace {

/// Returns the bytes that a ring member sends to the next, relative to its own.
double ring_factor(const std::string& op, std::size_t members) {
  const auto n = static_cast<double>(members);
  if (op.starts_with("motley::all_reduce")) return 2 * (n - 1) / n;
  if (op.starts_with("motley::all_gather")) return n - 1;
  return (n - 1) / n;
}

/// The receiver and bytes of a rank's instruction. -1: it sends to none.
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

/// Spans of the exchanges of each device of a trace, by instruction.
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

/// Returns the number of devices that hold only a part of a layer's parameters, by layer.
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

std::size_t count_stages(const std::vector<report::StageRow>& stages,
                         const std::vector<std::string>& devices) {
  return static_cast<std::size_t>(std::count_if(stages.begin(), stages.end(), [&](const auto& row) {
    return std::any_of(row.devices.begin(), row.devices.end(), [&](const std::string& each) {
      return std::find(devices.begin(), devices.end(), each) != devices.end();
    });
  }));
}

std::string cut_text(const program::Program& program, const trace::Trace& trace,
                     const std::vector<report::StageRow>& stages,
                     const std::vector<double>& seconds, int parts) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::int64_t> samples;
  std::vector<std::string> devices;
  for (std::size_t d = 0; d < seconds.size(); ++d) {
    if (seconds[d] <= 0) continue;
    devices.push_back(trace.devices[d]);
    for (const program::DeviceProgram& device : program.devices)
      if (device.device == devices.back()) samples.push_back(device.samples);
  }
  if (devices.size() == 1) return "on " + devices.front() + " alone";
  if (count_stages(stages, devices) > 1)
    return devices.size() > kNamed ? fmt::format("on {} devices, by stages", devices.size())
                                   : "on " + join(devices, ", ");
  if (parts > 1) return fmt::format("weights in {} parts", parts);
  return "samples " + plan::samples_text(samples);
}

/// Returns the first operator in the model of each layer; layers without operators are missing.
std::map<std::string, std::int64_t> places_of_layers(const program::Program& program,
                                                     const trace::Trace& trace) {
  std::map<std::string, std::int64_t> places;
  for (std::size_t d = 0; d < program.devices.size() && d < trace.devices.size(); ++d) {
    const auto& instructions = program.devices[d].instructions;
    for (std::size_t i = 0; i < instructions.size() && i < trace.names[d].size(); ++i) {
      const OpId origin = instructions[i].origin;
      if (origin.is_none()) continue;
      const auto at = places.try_emplace(report::layer_of(trace.names[d][i]), origin.value).first;
      at->second = std::min<std::int64_t>(at->second, origin.value);
    }
  }
  return places;
}

}  // namespace

std::vector<report::LayerCut> find_layer_cuts(const program::Program& program,
                                              const trace::Trace& trace,
                                              const std::vector<report::StageRow>& stages) {
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
    each.cut =
        cut_text(program, trace, stages, each.compute_s, found == parts.end() ? 0 : found->second);
  }
  const auto places = places_of_layers(program, trace);
  const auto place = [&](const report::LayerCut& layer) {
    const auto found = places.find(layer.layer);
    return found == places.end() ? std::numeric_limits<std::int64_t>::max() : found->second;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return layers;
}

namespace {

/// Is the operator in the ranges? No ranges mean all operators.
bool has(const std::vector<plan::OpRange>& ranges, OpId op) {
  return ranges.empty() ||
         std::any_of(ranges.begin(), ranges.end(), [&](const plan::OpRange& range) {
           return range.first <= op.value && op.value < range.end;
         });
}

struct RegionWork {
  struct Layer {
    std::int64_t first = 0;
    double seconds = 0;
  };
  double seconds = 0;
  std::map<std::string, Layer> layers;  // of the forward pass
};

RegionWork work_of_region(const plan::Region& region, const program::DeviceProgram& device,
                          const trace::Trace& trace, std::size_t at, OpId first_backward) {
  RegionWork work;
  double steps = 0;
  for (const trace::StepMark& mark : trace.steps) steps += mark.device == static_cast<int>(at);
  for (const trace::Interval& each : trace.intervals) {
    if (each.device != static_cast<int>(at) || each.lane != Lane::kCompute || each.bytes > 0 ||
        each.instruction.index() >= device.instructions.size() || steps == 0)
      continue;  // a directory may have a trace of another program
    const OpId origin = device.instructions[each.instruction.index()].origin;
    if (origin.is_none() || !has(region.covers, origin)) continue;
    const double seconds = 1e-9 * static_cast<double>(each.end - each.begin) / steps;
    work.seconds += seconds;
    const std::string name = report::layer_of(trace.names[at][each.instruction.index()]);
    if (name == "batch" || (!first_backward.is_none() && origin.value >= first_backward.value))
      continue;
    auto& layer = work.layers.try_emplace(name, RegionWork::Layer{origin.value}).first->second;
    layer.first = std::min<std::int64_t>(layer.first, origin.value);
    layer.seconds += seconds;
  }
  return work;
}

/// Returns the first and last layer, "wte to h.1". Omits layers below a hundredth of the time, such
/// as the transpose of a weight that is used elsewhere.
std::string layers_text(const RegionWork& work) {
  std::map<std::int64_t, std::string> in_order;
  for (const auto& [name, layer] : work.layers)
    if (layer.seconds > 0.01 * work.seconds) in_order[layer.first] = name;
  if (in_order.empty()) return "";
  const std::string &first = in_order.begin()->second, &last = in_order.rbegin()->second;
  return first == last ? first : first + " to " + last;
}

}  // namespace

void add_stage_work(const plan::Plan& plan, const program::Program& program,
                    const trace::Trace& trace, std::vector<report::StageRow>& stages) {
  const OpId first_backward = find_first_backward(program);
  for (report::StageRow& row : stages) {
    const plan::Region& region = plan.replicas[static_cast<std::size_t>(row.replica)]
                                     .regions[static_cast<std::size_t>(row.stage)];
    for (std::size_t d = 0; d < trace.devices.size() && d < program.devices.size(); ++d) {
      if (std::find(row.devices.begin(), row.devices.end(), trace.devices[d]) == row.devices.end())
        continue;
      const RegionWork work = work_of_region(region, program.devices[d], trace, d, first_backward);
      row.compute_s = std::max(row.compute_s, work.seconds);
      if (std::string layers = layers_text(work); !layers.empty()) row.layers = std::move(layers);
    }
  }
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
