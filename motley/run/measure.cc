#include "motley/run/measure.h"

#include <map>

#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/program/program_text.h"

namespace motley::run {
namespace {

/// Calls `read(item, where)` for each item of a list member and collects the results.
template <typename T, typename Read>
Result<std::vector<T>> read_list(JsonObject& object, const std::string& key, const Read& read) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  if (!list->is_array())
    return usage_error("run.measure", object.where() + ": key '" + key + "': wanted a list");
  std::vector<T> items;
  for (std::size_t i = 0; i < list->size(); ++i) {
    MOTLEY_ASSIGN(T item,
                  read((*list)[i], object.where() + ": " + key + "[" + std::to_string(i) + "]"));
    items.push_back(std::move(item));
  }
  return items;
}

Result<OpTime> op_time_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  OpTime time;
  MOTLEY_ASSIGN(time.key, object.string("key"));
  MOTLEY_ASSIGN(time.median.value, object.number("median_s"));
  MOTLEY_ASSIGN(time.spread, object.number("spread"));
  MOTLEY_ASSIGN(time.samples, object.integer("samples"));
  MOTLEY_ASSIGN(time.scratch.value, object.integer("scratch_bytes"));
  return time;
}

Result<CollectiveTime> collective_time_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  CollectiveTime time;
  MOTLEY_ASSIGN(time.op, object.string("op"));
  MOTLEY_ASSIGN(time.backend, object.string("backend"));
  MOTLEY_ASSIGN(time.ranks, object.integer("ranks"));
  MOTLEY_ASSIGN(time.bytes.value, object.integer("bytes"));
  MOTLEY_ASSIGN(time.median.value, object.number("median_s"));
  MOTLEY_ASSIGN(time.spread, object.number("spread"));
  MOTLEY_ASSIGN(time.samples, object.integer("samples"));
  return time;
}

Result<OverlapTime> overlap_time_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  OverlapTime time;
  MOTLEY_ASSIGN(time.rank, object.integer("rank"));
  MOTLEY_ASSIGN(time.alone.value, object.number("alone_s"));
  MOTLEY_ASSIGN(time.together.value, object.number("together_s"));
  MOTLEY_ASSIGN(time.overlap.value, object.number("overlap_s"));
  return time;
}

Result<int> rank_from_json(const Json& json, const std::string& where) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() < 1'000'000) return json.get<int>();
  return usage_error("run.measure", where + ": wanted a rank");
}

Result<std::string> string_from_json(const Json& json, const std::string& where) {
  if (!json.is_string()) return usage_error("run.measure", where + ": wanted a string");
  return json.get<std::string>();
}

/// Seconds of every compute instruction of a device in every step.
std::map<int, std::vector<double>> durations(const trace::Trace& trace, int device) {
  std::map<int, std::vector<double>> times;
  for (const trace::Interval& interval : trace.intervals)
    if (interval.device == device && interval.lane == Lane::kCompute)
      times[interval.instruction.value].push_back(
          static_cast<double>(interval.end - interval.begin) * 1e-9);
  return times;
}

}  // namespace

std::vector<OpTime> time_operators(const program::DeviceProgram& program, const trace::Trace& trace,
                                   int device) {
  struct Sum {
    double median = 0, deviation = 0;
    std::int64_t instructions = 0, samples = 0;
  };
  std::map<std::string, Sum> by_key;
  for (const auto& [id, times] : durations(trace, device)) {
    const auto& instruction = program.instructions[static_cast<std::size_t>(id)];
    Sum& sum = by_key[program::cost_key(program, instruction)];
    const Scatter scatter = find_scatter(times);
    sum.median += scatter.middle;
    sum.deviation += scatter.deviation;
    sum.samples += static_cast<std::int64_t>(times.size());
    ++sum.instructions;
  }
  std::vector<OpTime> result;
  for (const auto& [key, sum] : by_key)
    result.push_back({key,
                      Seconds(sum.median / static_cast<double>(sum.instructions)),
                      sum.median > 0 ? sum.deviation / sum.median : 0.0,
                      sum.samples,
                      {}});
  return result;
}

Json profile_job_to_json(const ProfileJob& job) {
  return {{"programs", job.programs},
          {"ranks", job.ranks},
          {"device", worker_device_to_json(job.device)},
          {"whole_steps", job.whole_steps},
          {"linger", job.linger},
          {"seconds_per_program", job.seconds_per_program}};
}

Result<ProfileJob> profile_job_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  ProfileJob job;
  MOTLEY_ASSIGN(job.whole_steps, object.boolean("whole_steps"));
  MOTLEY_ASSIGN(job.linger, object.boolean("linger"));
  MOTLEY_ASSIGN(job.programs, read_list<std::string>(object, "programs", string_from_json));
  MOTLEY_ASSIGN(job.ranks, read_list<int>(object, "ranks", rank_from_json));
  if (job.ranks.size() != job.programs.size())
    return usage_error("run.measure", where + ": wanted as many ranks as programs");
  MOTLEY_ASSIGN(const Json* device, object.member("device"));
  MOTLEY_ASSIGN(job.device, worker_device_from_json(*device, where + ": device"));
  MOTLEY_ASSIGN(job.seconds_per_program, object.number("seconds_per_program"));
  return job;
}

Json op_times_to_json(const std::vector<OpTime>& times) {
  Json list = Json::array();
  for (const OpTime& time : times)
    list.push_back({{"key", time.key},
                    {"median_s", time.median.value},
                    {"spread", time.spread},
                    {"samples", time.samples},
                    {"scratch_bytes", time.scratch.value}});
  return {{"ops", std::move(list)}};
}

Result<std::vector<OpTime>> op_times_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  return read_list<OpTime>(object, "ops", op_time_from_json);
}

Json measured_group_to_json(const MeasuredGroup& times) {
  Json collectives = Json::array(), overlaps = Json::array();
  for (const CollectiveTime& time : times.collectives)
    collectives.push_back({{"op", time.op},
                           {"backend", time.backend},
                           {"ranks", time.ranks},
                           {"bytes", time.bytes.value},
                           {"median_s", time.median.value},
                           {"spread", time.spread},
                           {"samples", time.samples}});
  for (const OverlapTime& time : times.overlaps)
    overlaps.push_back({{"rank", time.rank},
                        {"alone_s", time.alone.value},
                        {"together_s", time.together.value},
                        {"overlap_s", time.overlap.value}});
  return {{"collectives", std::move(collectives)},
          {"backend", times.backend},
          {"overlaps", std::move(overlaps)}};
}

Result<MeasuredGroup> measured_group_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MeasuredGroup times;
  MOTLEY_ASSIGN(times.collectives,
                read_list<CollectiveTime>(object, "collectives", collective_time_from_json));
  MOTLEY_ASSIGN(times.backend, object.string("backend"));
  MOTLEY_ASSIGN(times.overlaps, read_list<OverlapTime>(object, "overlaps", overlap_time_from_json));
  return times;
}

}  // namespace motley::run
