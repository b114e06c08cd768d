#include "motley/run/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json_fields.h"
#include "motley/cluster/cluster.h"

namespace motley::run {
namespace {

constexpr const char* kJobSchema = "motley.job/1";

}  // namespace

bool Changes::is_absent(const std::string& device) const {
  return std::find(absent.begin(), absent.end(), device) != absent.end();
}

std::set<std::string> first_hosts(const Job& job) {
  std::set<std::string> hosts;
  for (const WorkerDevice& device : job.devices)
    if (!device.host.empty() && !(job.changes && job.changes->is_absent(device.name)))
      hosts.insert(device.host);
  return hosts;
}

bool has_own_directories(const Job& job) { return job.store || (job.changes && job.changes->keys); }

std::set<std::string> remote_hosts(const Job& job) {
  std::set<std::string> hosts;
  for (const WorkerDevice& device : job.devices)
    if (!device.host.empty()) hosts.insert(device.host);
  return hosts;
}

Result<void> Batches::check(const std::string& where) const {
  if (first >= 1 && most >= first && lr_factor > 0) return {};
  return usage_error("run.job", where + ": wanted numbers above 0");
}

Result<void> Job::check(const std::string& where) const {
  if (devices.empty())
    return usage_error("run.job", where + ": key 'devices': wanted a list of at least one device");
  if (!cluster::is_transport(transport))
    return usage_error(
        "run.job", fmt::format("{}: transport: found '{}', wanted auto or gloo", where, transport));
  if (steps >= 0 && checkpoint_every >= 0 && trace_steps >= 0 && timeout.value > 0) return {};
  return usage_error("run.job", where +
                                    ": wanted steps, checkpoint_every, trace_steps >= 0 and "
                                    "timeout_s > 0");
}

Json job_to_json(const Job& job) {
  Json json{{"schema", kJobSchema}};
  json.update(fields_to_json(job));
  return json;
}

Result<Job> job_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kJobSchema)
    return usage_error("run.job", fmt::format("{}: found schema '{}', wanted '{}'; write it with "
                                              "the motley of the same version",
                                              where, schema, kJobSchema));
  MOTLEY_ASSIGN(Job job, fields_of<Job>(object));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return job;
}

std::string print_event(const WorkerEvent& event) {
  Json json{{"event", event.event}, {"rank", event.rank}};
  for (const auto& [key, value] : event.fields.items()) json[key] = value;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

struct KindRow {
  ErrorKind kind;
  std::string_view name;
};
constexpr KindRow kKinds[] = {{ErrorKind::kUsage, "usage"},
                              {ErrorKind::kInfeasible, "infeasible"},
                              {ErrorKind::kStale, "stale"},
                              {ErrorKind::kCheck, "check"},
                              {ErrorKind::kRuntime, "runtime"}};

const KindRow& kind_row(ErrorKind kind) {
  for (const KindRow& row : kKinds)
    if (row.kind == kind) return row;
  return kKinds[4];
}

}  // namespace

std::string_view error_kind_name(ErrorKind kind) { return kind_row(kind).name; }
std::optional<ErrorKind> find_error_kind(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (row.name == name) return row.kind;
  return std::nullopt;
}

Result<WorkerEvent> parse_event(std::string_view line) {
  MOTLEY_ASSIGN(const Json json, parse_json(line, "event"));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, "event"));
  WorkerEvent event;
  MOTLEY_ASSIGN(event.event, object.string("event"));
  MOTLEY_ASSIGN(event.rank, object.integer("rank"));
  event.fields = Json::object();
  for (const auto& [key, value] : json.items())
    if (key != "event" && key != "rank") event.fields[key] = value;
  return event;
}

Error event_error(const WorkerEvent& event) {
  const auto text = [&](const char* key) {
    return event.fields.contains(key) && event.fields[key].is_string()
               ? event.fields[key].get<std::string>()
               : std::string();
  };
  return Error{find_error_kind(text("kind")).value_or(ErrorKind::kRuntime), text("code"),
               text("message")};
}

}  // namespace motley::run
