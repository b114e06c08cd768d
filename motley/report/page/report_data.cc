#include "motley/report/page/report_data.h"

#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/report/waits.h"

namespace motley::report {
namespace {

double per_step(trace::Nanoseconds time, std::int64_t steps) {
  return steps > 0 ? static_cast<double>(time) * 1e-9 / static_cast<double>(steps) : 0;
}

Json device_times_to_json(const Timeline& timeline) {
  Json devices = Json::array();
  const trace::Trace& trace = timeline.trace;
  const std::vector<DeviceTimes> times = sum_times(trace, find_waits(trace, timeline.peers));
  for (std::size_t d = 0; d < times.size(); ++d) {
    Json waits = Json::array();
    for (std::size_t late = 0; late < times.size(); ++late)
      if (times[d].waiting_for[late] > 0)
        waits.push_back({{"for", trace.devices[late]},
                         {"waiting_s", per_step(times[d].waiting_for[late], times[d].steps)}});
    devices.push_back({{"name", trace.devices[d]},
                       {"computing_s", per_step(times[d].computing, times[d].steps)},
                       {"waiting_s", per_step(times[d].waiting, times[d].steps)},
                       {"other_s", per_step(times[d].other, times[d].steps)},
                       {"waits", std::move(waits)}});
  }
  return devices;
}

Json optional_bytes(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->value) : Json(nullptr);
}

Json memory_to_json(const std::vector<DeviceMemory>& memory) {
  Json list = Json::array();
  for (const DeviceMemory& each : memory) {
    Json parts = Json::object();
    for (const auto& [name, bytes] : each.parts) parts[name + "_bytes"] = bytes.value;
    list.push_back({{"name", each.device},
                    {"limit_bytes", optional_bytes(each.limit)},
                    {"predicted_bytes", optional_bytes(each.predicted)},
                    {"measured_bytes", optional_bytes(each.measured)},
                    {"parts", std::move(parts)}});
  }
  return list;
}

Json curves_to_json(const std::vector<Curve>& curves) {
  Json list = Json::array();
  for (const Curve& curve : curves)
    list.push_back({{"name", curve.name},
                    {"unit", curve.unit},
                    {"expected", curve.expected ? Json(*curve.expected) : Json(nullptr)},
                    {"points", curve.points}});
  return list;
}

}  // namespace

Json report_data_to_json(const ReportData& report_data) {
  Json json{{"state", report_data.state},
            {"verdict", report_data.verdict},
            {"remarks", report_data.remarks}};
  for (const char* key :
       {"samples", "timelines", "links", "layers", "stages", "neighbours", "ranks"})
    json[key] = Json::array();
  for (const auto& [device, samples] : report_data.samples)
    json["samples"].push_back({{"name", device}, {"samples", samples}});
  for (const Timeline& each : report_data.timelines)
    json["timelines"].push_back({{"name", each.name},
                                 {"plan", each.caption},
                                 {"step_s", each.step.value},
                                 {"devices", device_times_to_json(each)}});
  json["device_memory"] = memory_to_json(report_data.memory);
  for (const LinkLoad& each : report_data.links)
    json["links"].push_back({{"name", each.name},
                             {"bandwidth_bytes_per_s", each.bandwidth.value},
                             {"bytes", each.bytes.value},
                             {"busy_share", each.busy_share}});
  for (const LayerCut& each : report_data.layers)
    json["layers"].push_back(
        {{"name", each.layer}, {"cut", each.cut}, {"compute_s", each.compute_s}});
  for (const StageRow& each : report_data.stages)
    json["stages"].push_back({{"replica", each.replica},
                              {"stage", each.stage},
                              {"devices", each.devices},
                              {"operators", each.operators},
                              {"samples", each.samples},
                              {"micro_batches", each.micro_batches},
                              {"layers", each.layers},
                              {"compute_s", each.compute_s}});
  for (const Neighbour& each : report_data.neighbours)
    json["neighbours"].push_back(
        {{"plan", each.label}, {"step_s", each.step.value}, {"fits", each.fits}});
  for (const RankRow& each : report_data.ranks)
    json["ranks"].push_back({{"rank", each.rank},
                             {"device", each.device},
                             {"is_running", each.is_running},
                             {"step", each.step ? Json(*each.step) : Json(nullptr)},
                             {"where", each.where}});
  json["curves"] = curves_to_json(report_data.curves);
  json["command"] = report_data.command.empty() ? Json(nullptr) : Json(report_data.command);
  return json;
}

std::string waiting_sentence(const ReportData& report_data) {
  if (report_data.timelines.empty()) return "";
  const Timeline& timeline = report_data.timelines.back();
  const trace::Trace& trace = timeline.trace;
  const std::vector<DeviceTimes> times = sum_times(trace, find_waits(trace, timeline.peers));
  std::size_t device = 0, late = 0;
  double longest = 0, share = 0;
  for (std::size_t d = 0; d < times.size(); ++d)
    for (std::size_t other = 0; other < times.size(); ++other)
      if (const double wait = per_step(times[d].waiting_for[other], times[d].steps);
          wait > longest) {
        device = d, late = other, longest = wait;
        share = static_cast<double>(times[d].waiting_for[other]) /
                static_cast<double>(times[d].computing + times[d].waiting + times[d].other);
      }
  if (times.size() < 2) return "";
  constexpr double kLittle = 0.02;
  if (share < kLittle) return "No device waits noticeably for another.";
  return fmt::format("{} waits longest: {} of each step ({:.0f} %) for {}.", trace.devices[device],
                     format_seconds(Seconds(longest)), 100 * share, trace.devices[late]);
}

}  // namespace motley::report
