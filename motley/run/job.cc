#include "motley/run/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json.h"
#include "motley/cluster/cluster.h"

namespace motley::run {
namespace {

constexpr const char* kJobSchema = "motley.job/1";

template <typename T>
Json optional_to_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

bool is_present(JsonObject& object, const std::string& key) {
  return object.has(key) && !(*object.member(key))->is_null();
}

/// Seeds use all 64 bits, which a signed integer does not hold.
Result<std::uint64_t> read_seed(JsonObject& object, const std::string& key) {
  MOTLEY_ASSIGN(const Json* member, object.member(key));
  if (!member->is_number_integer() || (!member->is_number_unsigned() && *member < 0))
    return usage_error("run.job", fmt::format("{}: key '{}': found {}, wanted an integer from 0 on",
                                              object.where(), key, member->dump()));
  return member->get<std::uint64_t>();
}

Result<std::vector<WorkerDevice>> devices_from_json(const Json& json, const std::string& where) {
  if (!json.is_array() || json.empty())
    return usage_error("run.job", where + ": key 'devices': wanted a list of at least one device");
  std::vector<WorkerDevice> devices;
  for (std::size_t i = 0; i < json.size(); ++i) {
    MOTLEY_ASSIGN(WorkerDevice device,
                  worker_device_from_json(json[i], fmt::format("{}: devices[{}]", where, i)));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

double WorkerDevice::speed_at(double seconds) const {
  double factor = 1;
  for (const Slowness& each : slow)
    if (seconds >= each.from && seconds < each.until) factor *= each.factor;
  return std::clamp(speed / factor, 1e-6, 1.0);
}

Json worker_device_to_json(const WorkerDevice& device) {
  Json json{
      {"name", device.name},
      {"kind", device.kind},
      {"host", device.host},
      {"local_index", device.local_index},
      {"uuid", device.uuid},
      {"threads", device.threads},
      {"speed", device.speed},
      {"processor", device.processor},
      {"memory", device.memory ? Json(device.memory->value) : Json(nullptr)},
      {"rate", optional_to_json(device.rate)},
      {"latency", optional_to_json(device.latency)},
      {"tf32", device.tf32},
  };
  for (const Slowness& each : device.slow)
    json["slow"].push_back({{"from", each.from}, {"until", each.until}, {"factor", each.factor}});
  for (const Fault& each : device.faults)
    json["faults"].push_back({{"step", each.step},
                              {"instruction", each.instruction},
                              {"hangs", each.hangs},
                              {"in_move", each.in_move}});
  return json;
}

Result<WorkerDevice> worker_device_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  WorkerDevice device;
  MOTLEY_ASSIGN(device.name, object.string("name"));
  MOTLEY_ASSIGN(device.kind, object.string("kind"));
  MOTLEY_ASSIGN(device.host, object.string("host"));
  MOTLEY_ASSIGN(device.local_index, object.integer("local_index"));
  MOTLEY_ASSIGN(device.uuid, object.string("uuid"));
  MOTLEY_ASSIGN(device.threads, object.integer("threads"));
  MOTLEY_ASSIGN(device.speed, object.number("speed"));
  MOTLEY_ASSIGN(device.processor, object.integer("processor"));
  if (is_present(object, "memory")) {
    MOTLEY_ASSIGN(const std::int64_t memory, object.integer("memory"));
    device.memory = Bytes(memory);
  }
  if (is_present(object, "rate")) {
    MOTLEY_ASSIGN(device.rate, object.number("rate"));
  }
  if (is_present(object, "latency")) {
    MOTLEY_ASSIGN(device.latency, object.number("latency"));
  }
  MOTLEY_ASSIGN(device.tf32, object.boolean("tf32"));
  if (object.has("slow")) {
    MOTLEY_ASSIGN(const Json* list, object.member("slow"));
    for (const Json& each : *list) {
      MOTLEY_ASSIGN(JsonObject slow, JsonObject::make(each, where + ": slow"));
      Slowness& read = device.slow.emplace_back();
      MOTLEY_ASSIGN(read.from, slow.number("from"));
      MOTLEY_ASSIGN(read.until, slow.number("until"));
      MOTLEY_ASSIGN(read.factor, slow.number("factor"));
    }
  }
  if (object.has("faults")) {
    MOTLEY_ASSIGN(const Json* list, object.member("faults"));
    for (const Json& each : *list) {
      MOTLEY_ASSIGN(JsonObject fault, JsonObject::make(each, where + ": faults"));
      Fault& read = device.faults.emplace_back();
      MOTLEY_ASSIGN(read.step, fault.integer("step"));
      MOTLEY_ASSIGN(read.instruction, fault.integer("instruction"));
      MOTLEY_ASSIGN(read.hangs, fault.boolean("hangs"));
      MOTLEY_ASSIGN(read.in_move, fault.boolean("in_move"));
    }
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  const bool sound = (device.kind == "cpu" || device.kind == "cuda") && device.threads >= 1 &&
                     device.local_index >= 0 && device.speed > 0 && device.speed <= 1 &&
                     (!device.memory || device.memory->value > 0) &&
                     (!device.rate || *device.rate > 0) &&
                     (!device.latency || *device.latency >= 0);
  if (!sound)
    return usage_error("run.job", fmt::format("{}: device '{}' has a value out of range, wanted "
                                              "kind cpu or cuda, threads >= 1, speed in (0, 1], "
                                              "memory, rate > 0, latency >= 0",
                                              where, device.name));
  return device;
}

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

namespace {

Json changes_to_json(const Changes& changes) {
  return {{"at", changes.at},
          {"elastic", changes.is_elastic},
          {"absent", changes.absent},
          {"keys", store_to_json(changes.keys)}};
}

Json batches_to_json(const Batches& batches) {
  return {{"first", batches.first}, {"most", batches.most}, {"lr_factor", batches.lr_factor}};
}

}  // namespace

Json job_to_json(const Job& job) {
  Json devices = Json::array();
  for (const WorkerDevice& device : job.devices) devices.push_back(worker_device_to_json(device));
  return Json{
      {"schema", kJobSchema},
      {"run_dir", job.run_dir},
      {"program", job.program_path},
      {"model", job.model_path},
      {"data", data::data_source_to_json(job.data)},
      {"shuffle", optional_to_json(job.shuffle)},
      {"steps", job.steps},
      {"schedule", schedule_to_json(job.schedule)},
      {"lr", job.lr},
      {"evaluation", job.evaluation ? evaluation_job_to_json(*job.evaluation) : Json(nullptr)},
      {"seed", job.seed},
      {"checkpoint_every", job.checkpoint_every},
      {"resume", job.resume},
      {"timeout_s", job.timeout_s},
      {"transport", job.transport},
      {"trace_steps", job.trace_steps},
      {"devices", std::move(devices)},
      {"rank_files", job.rank_files},
      {"kept", job.kept},
      {"store", store_to_json(job.store)},
      {"changes", job.changes ? changes_to_json(*job.changes) : Json(nullptr)},
      {"batches", job.batches ? batches_to_json(*job.batches) : Json(nullptr)},
  };
}

namespace {

Result<Changes> changes_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const Json* list, object.member("at"));
  Changes changes;
  for (const Json& each : *list) {
    if (!each.is_number_integer()) return usage_error("run.job", where + ": at: wanted steps");
    changes.at.push_back(each.get<std::int64_t>());
  }
  MOTLEY_ASSIGN(changes.is_elastic, object.boolean("elastic"));
  MOTLEY_ASSIGN(changes.absent, object.strings("absent"));
  if (is_present(object, "keys")) {
    MOTLEY_ASSIGN(changes.keys, store_from_json(**object.member("keys"), where + ": keys"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return changes;
}

Result<Batches> batches_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  Batches batches;
  MOTLEY_ASSIGN(batches.first, object.integer("first"));
  MOTLEY_ASSIGN(batches.most, object.integer("most"));
  MOTLEY_ASSIGN(batches.lr_factor, object.number("lr_factor"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (batches.first < 1 || batches.most < batches.first || !(batches.lr_factor > 0))
    return usage_error("run.job", where + ": wanted numbers above 0");
  return batches;
}

}  // namespace

Result<Job> job_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kJobSchema)
    return usage_error("run.job", fmt::format("{}: found schema '{}', wanted '{}'; write it with "
                                              "the motley of the same version",
                                              where, schema, kJobSchema));
  Job job;
  MOTLEY_ASSIGN(job.run_dir, object.string("run_dir"));
  MOTLEY_ASSIGN(job.program_path, object.string("program"));
  MOTLEY_ASSIGN(job.model_path, object.string("model"));
  MOTLEY_ASSIGN(const Json* data, object.member("data"));
  MOTLEY_ASSIGN(job.data, data::data_source_from_json(*data, where + ": data"));
  if (is_present(object, "shuffle")) {
    MOTLEY_ASSIGN(job.shuffle, read_seed(object, "shuffle"));
  }
  MOTLEY_ASSIGN(job.steps, object.integer("steps"));
  MOTLEY_ASSIGN(const Json* schedule, object.member("schedule"));
  MOTLEY_ASSIGN(job.schedule, schedule_from_json(*schedule, where + ": schedule"));
  MOTLEY_ASSIGN(job.lr, object.number("lr"));
  if (is_present(object, "evaluation")) {
    MOTLEY_ASSIGN(job.evaluation,
                  evaluation_job_from_json(**object.member("evaluation"), where + ": evaluation"));
  }
  MOTLEY_ASSIGN(job.seed, read_seed(object, "seed"));
  MOTLEY_ASSIGN(job.checkpoint_every, object.integer("checkpoint_every"));
  MOTLEY_ASSIGN(job.resume, object.boolean("resume"));
  MOTLEY_ASSIGN(job.timeout_s, object.number("timeout_s"));
  MOTLEY_ASSIGN(job.transport, object.string("transport"));
  MOTLEY_ASSIGN(job.trace_steps, object.integer("trace_steps"));
  MOTLEY_ASSIGN(const Json* devices, object.member("devices"));
  MOTLEY_ASSIGN(job.devices, devices_from_json(*devices, where));
  MOTLEY_ASSIGN(job.rank_files, object.string("rank_files"));
  if (object.has("kept")) {
    MOTLEY_ASSIGN(job.kept, object.string("kept"));
  }
  if (is_present(object, "store")) {
    MOTLEY_ASSIGN(job.store, store_from_json(**object.member("store"), where + ": store"));
  }
  if (is_present(object, "changes")) {
    MOTLEY_ASSIGN(job.changes, changes_from_json(**object.member("changes"), where + ": changes"));
  }
  if (is_present(object, "batches")) {
    MOTLEY_ASSIGN(job.batches, batches_from_json(**object.member("batches"), where + ": batches"));
  }
  (void)object.has("shuffle");
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (!cluster::is_transport(job.transport))
    return usage_error("run.job", fmt::format("{}: transport: found '{}', wanted auto or gloo",
                                              where, job.transport));
  if (job.steps < 0 || job.checkpoint_every < 0 || job.trace_steps < 0 || !(job.timeout_s > 0))
    return usage_error("run.job", where +
                                      ": wanted steps, checkpoint_every, trace_steps >= 0 and "
                                      "timeout_s > 0");
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

}  // namespace motley::run
