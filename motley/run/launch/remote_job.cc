#include "motley/run/launch/remote_job.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/graph/model_file.h"
#include "motley/run/batch_order.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/checkpoints/held_parts.h"
#include "motley/run/checkpoints/rank_files.h"
#include "motley/run/data_placement.h"
#include "motley/run/data_reads.h"
#include "motley/run/hosts/here.h"
#include "motley/run/hosts/wire.h"
#include "motley/run/input_specs.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr double kPatience = 60;  // seconds

/// Shares a local file with a host. Returns its path there.
Result<std::string> place_file(HostLink& link, const std::string& from, const std::string& name) {
  const std::string path = fmt::format("run/in/{}/{}", name, fs::path(from).filename().string());
  MOTLEY_RETURN_IF_ERROR(link.share(from, path));
  return link.scratch() + "/" + path;
}

/// Local sample files; hosts receive what they read. None if elsewhere or loaded by Python.
struct DataFiles {
  std::optional<DataFile> training, evaluated;

  static Result<DataFiles> open(const Job& job) {
    DataFiles files;
    const bool has_evaluation = job.evaluation && is_file(job.evaluation->data);
    if (!is_file(job.data) && !has_evaluation) return files;
    MOTLEY_ASSIGN(const graph::Model model, graph::read_model(job.model_path));
    const std::vector<data::InputSpec> inputs = input_specs(model.graph);
    if (is_file(job.data)) {
      MOTLEY_ASSIGN(files.training, DataFile::open(job.data, inputs));
    }
    if (has_evaluation) {
      MOTLEY_ASSIGN(files.evaluated, DataFile::open(job.evaluation->data, inputs));
    }
    return files;
  }
  static bool is_file(const data::DataSource& source) {
    std::error_code code;
    return !data::is_loaded(source) && fs::is_regular_file(source.path, code);
  }
};

/// Returns a program's ranks whose samples a host needs: all ranks if plans change.
std::vector<int> ranks_on(const Job& job, const program::Program& program,
                          const std::string& host) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    if (job.changes || job.devices[rank].host == host) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

/// If the batch changes, any device may need any remaining sample; the last batch may be largest.
std::vector<DataReads> changing_reads(const Job& job, const RankFiles& files,
                                      std::int64_t samples) {
  const std::int64_t size = job.batches->first;
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  const BatchKind kind{size, {all}};
  const std::int64_t end = job.steps * size + job.batches->most;
  std::vector<DataReads> choices;
  for (const std::int64_t taken : std::set<std::int64_t>{0, std::min(files.samples(), end)})
    choices.push_back({.order = BatchOrder::endless(kind, 0, taken),
                       .batches = (end - taken + size - 1) / size,
                       .ranks = {0},
                       .samples = samples,
                       .shuffle = job.shuffle});
  return choices;
}

/// Returns the reads of the whole training, which a host may have from its start, or of the rest.
std::vector<DataReads> training_reads(const Job& job, const RankFiles& files, std::int64_t samples,
                                      const std::string& host) {
  if (job.batches) return changing_reads(job, files, samples);
  std::vector<DataReads> choices;
  for (const std::int64_t first : std::set<std::int64_t>{0, std::min(files.step(), job.steps)}) {
    const BatchKind kind = batch_kind(files.training());
    choices.push_back({.order = BatchOrder::endless(kind, first, first * kind.size),
                       .batches = job.steps - first,
                       .ranks = ranks_on(job, files.training(), host),
                       .samples = samples,
                       .shuffle = job.shuffle});
  }
  return choices;
}

DataReads evaluation_reads(const Job& job, const RankFiles& files, std::int64_t samples,
                           const std::string& host) {
  std::vector<BatchKind> kinds;
  for (const program::Program& program : files.evaluating()) kinds.push_back(batch_kind(program));
  const BatchOrder order = BatchOrder::passes_over(std::move(kinds), job.evaluation->samples);
  return {.order = order,
          .batches = order.batches_in_pass(),
          .ranks = ranks_on(job, files.training(), host),
          .samples = samples};
}

/// Checks that data which is not sent exists on the host.
Result<void> find_data(HostLink& link, const data::DataSource& source) {
  MOTLEY_ASSIGN(const Frame found,
                link.ask({{"do", "exists"}, {"path", source.path}}, "exists", kPatience));
  if (found.head.value("there", false)) return {};
  return usage_error("host.data",
                     fmt::format("host {}: {} is not there; folders and what Python loads must lie "
                                 "at the same path on every host",
                                 link.host(), source.path));
}

Result<void> place_latest(HostLink& link, const std::string& run_dir) {
  std::error_code code;
  const fs::path folder = fs::canonical(run_dir + "/checkpoint/latest", code);
  if (code) return {};  // none
  MOTLEY_RETURN_IF_ERROR(place_checkpoint(link, folder.string()));
  return link.link("run/checkpoint/latest", folder.filename().string());
}

/// Returns the agent of each rank; "": this process. An unreached host is its own agent.
std::vector<std::string> choose_agents(const Hosts& hosts, const Job& job) {
  std::map<std::string, int> ranks_of;
  std::vector<std::string> chosen;
  for (const WorkerDevice& device : job.devices) {
    std::vector<std::string> agents = hosts.agents_on(device.host);
    if (agents.empty() && !device.host.empty()) agents = {device.host};
    if (device.host.empty()) agents.insert(agents.begin(), "");
    chosen.push_back(*std::min_element(
        agents.begin(), agents.end(),
        [&](const std::string& a, const std::string& b) { return ranks_of[a] < ranks_of[b]; }));
    ++ranks_of[chosen.back()];
  }
  return chosen;
}

/// `remote`: hosts that were reached.
Result<void> choose_store(Hosts& hosts, const std::set<std::string>& remote, Job& job) {
  if (remote.empty() || job.devices.size() < 2) return {};
  if (job.changes) {  // the coordinator has the keys (run/hosts/key_server.h)
    job.changes->keys->address = hosts.way_to(*remote.begin()).coordinator;
    return {};
  }
  const std::string& first = job.devices[0].host;
  if (first.empty()) {
    MOTLEY_ASSIGN(const int port, find_free_port());
    job.store = StoreAddress{hosts.way_to(*remote.begin()).coordinator, port, random_word()};
    return {};
  }
  MOTLEY_ASSIGN(const Frame answer, hosts.on(first).ask({{"do", "port"}}, "port", kPatience));
  job.store = StoreAddress{hosts.way_to(first).host, answer.head.value("port", 0), random_word()};
  return {};
}

/// Checks that a host can connect to the coordinator's machine at this address.
Result<void> check_way(HostLink& link, const std::string& coordinator) {
  const std::string word = random_word();
  MOTLEY_ASSIGN(const auto server, WireServer::start(coordinator, word));
  MOTLEY_RETURN_IF_ERROR(link.ask({{"do", "wire"},
                                   {"id", 0},
                                   {"what", "ping"},
                                   {"seconds", 0.0},
                                   {"address", coordinator},
                                   {"port", server->port()},
                                   {"word", word}},
                                  "wire", kPatience));
  return {};
}

/// Checks that all hosts can connect to the one where the ranks meet; otherwise workers would retry
/// for minutes. Runtime error `host.wire` names the host that cannot.
Result<void> check_ways(Hosts& hosts, const Job& job) {
  if (!job.store) return {};
  const std::string &first = job.devices[0].host, &address = job.store->address;
  const std::string word = random_word();
  std::unique_ptr<WireServer> server;
  int port = 0;
  if (first.empty()) {
    MOTLEY_ASSIGN(server, WireServer::start(address, word));
    port = server->port();
  } else {
    MOTLEY_ASSIGN(const Frame listening,
                  hosts.on(first).ask({{"do", "listen"}, {"address", address}, {"word", word}},
                                      "listening", kPatience));
    port = listening.head.value("port", 0);
  }
  std::set<std::string> others = remote_hosts(job);
  others.erase(first);
  for (const std::string& host : others)
    MOTLEY_RETURN_IF_ERROR(hosts.on(host).send({{"do", "wire"},
                                                {"id", 0},
                                                {"what", "ping"},
                                                {"seconds", 0.0},
                                                {"address", address},
                                                {"port", port},
                                                {"word", word}}));
  const bool is_ours =
      !first.empty() && std::any_of(job.devices.begin(), job.devices.end(),
                                    [](const WorkerDevice& each) { return each.host.empty(); });
  if (is_ours)
    MOTLEY_RETURN_IF_ERROR(measure_wire(address, port, word, {.what = WireAsk::What::kPing}));
  for (const std::string& host : others)
    MOTLEY_RETURN_IF_ERROR(hosts.on(host).wait_for("wire", kPatience));
  return {};
}

/// A folder for files that are sent and then removed.
class Outbox {
 public:
  Outbox() {
    std::string name = (fs::temp_directory_path() / "motley-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
  }
  ~Outbox() {
    std::error_code code;
    if (!folder_.empty()) fs::remove_all(folder_, code);
  }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  const std::string& folder() const { return folder_; }
  std::string file() const { return folder_ + "/model.safetensors"; }

 private:
  std::string folder_;
};

/// Sends what each rank on the host needs alone. Rank 0's host gets the whole model file.
Result<void> place_rank_files(HostLink& link, const RankFiles& files, const std::string& host,
                              const Job& job) {
  const Outbox outbox;
  const bool has_model = job.devices[0].host == host;
  for (std::size_t i = 0; i < job.devices.size(); ++i) {
    if (job.devices[i].host != host) continue;
    const auto number = static_cast<int>(i);
    const RankFolder there("run/ranks", number);
    MOTLEY_RETURN_IF_ERROR(link.put_text(files.program(Rank(number)), there.program()));
    for (std::size_t k = 0; k < files.evaluations(); ++k)
      MOTLEY_RETURN_IF_ERROR(link.put_text(files.evaluation(k, Rank(number)), there.evaluation(k)));
    if (has_model) continue;
    MOTLEY_RETURN_IF_ERROR(files.write_weights(Rank(number), outbox.file()));
    MOTLEY_RETURN_IF_ERROR(link.put(outbox.file(), there.weights()));
    if (const auto held = files.held(Rank(number), link.kept_folder()))
      MOTLEY_RETURN_IF_ERROR(link.put_text(*held, there.held()));
  }
  if (has_model) return {};
  MOTLEY_RETURN_IF_ERROR(files.write_model(outbox.file()));
  return link.put(outbox.file(), "run/in/model/model.safetensors");
}

/// Sends all programs and the model file, because changing plans may place any rank here.
Result<void> place_whole_files(HostLink& link, const Job& job, Job& there) {
  MOTLEY_ASSIGN(there.model_path, place_file(link, job.model_path, "model"));
  there.program_path = there.run_dir + "/in/program.txt";
  MOTLEY_RETURN_IF_ERROR(link.put(job.program_path, "run/in/program.txt"));
  for (std::size_t i = 0; job.evaluation && i < job.evaluation->programs.size(); ++i) {
    const std::string path = fmt::format("in/evaluation-{}.txt", i);
    MOTLEY_RETURN_IF_ERROR(link.put(job.evaluation->programs[i], "run/" + path));
    there.evaluation->programs[i] = there.run_dir + "/" + path;
  }
  return {};
}

/// Sends the data of a job with a program, and records its sources there in `there`.
Result<void> place_data(HostLink& link, const DataFiles& data, const RankFiles& files,
                        const std::string& host, const Job& job, Job& there) {
  const auto path = [](const char* name, const data::DataSource& source) {
    return fmt::format("run/in/{}/{}", name, fs::path(source.path).filename().string());
  };
  if (data.training) {
    const auto reads = training_reads(job, files, data.training->samples(), host);
    MOTLEY_ASSIGN(there.data, data.training->place(link, path("data", job.data), reads));
  } else if (!job.data.path.empty()) {
    MOTLEY_RETURN_IF_ERROR(find_data(link, job.data));
  }
  if (!job.evaluation) return {};
  const data::DataSource& evaluated = job.evaluation->data;
  if (!data.evaluated) return find_data(link, evaluated);
  const auto reads = evaluation_reads(job, files, data.evaluated->samples(), host);
  MOTLEY_ASSIGN(there.evaluation->data,
                data.evaluated->place(link, path("eval-data", evaluated), {reads}));
  return {};
}

/// What hosts receive of a job with a program.
struct Given {
  RankFiles ranks;
  DataFiles data;
};

/// Sends the job; returns its path there. `given`: null without a program. `way`: to the host.
Result<std::string> place_files(HostLink& link, const Given* given, const std::string& host,
                                const Hosts::Way& way, const Job& job) {
  MOTLEY_RETURN_IF_ERROR(link.send({{"do", "reset"}}));
  Job there = job;
  there.run_dir = link.scratch() + "/run";
  if (!job.kept.empty()) there.kept = link.kept_folder() + "/" + job.kept;
  if (given != nullptr && job.changes) {
    there.changes->keys->address = way.coordinator;
    MOTLEY_RETURN_IF_ERROR(place_whole_files(link, job, there));
    if (job.resume) MOTLEY_RETURN_IF_ERROR(place_latest(link, job.run_dir));
    MOTLEY_RETURN_IF_ERROR(place_data(link, given->data, given->ranks, host, job, there));
  } else if (given != nullptr) {
    const bool leads = job.devices[0].host == host;
    MOTLEY_RETURN_IF_ERROR(place_rank_files(link, given->ranks, host, job));
    there.rank_files = there.run_dir + "/ranks";
    there.model_path = there.run_dir + "/in/model/model.safetensors";
    if (leads) {
      MOTLEY_ASSIGN(there.model_path, place_file(link, job.model_path, "model"));
    }
    if (leads && job.resume) MOTLEY_RETURN_IF_ERROR(place_latest(link, job.run_dir));
    MOTLEY_RETURN_IF_ERROR(place_data(link, given->data, given->ranks, host, job, there));
  }
  MOTLEY_RETURN_IF_ERROR(link.put_text(job_to_json(there).dump(), "run/job.json"));
  const std::string path = there.run_dir + "/job.json";
  // The answer comes after any error of the transfers.
  MOTLEY_RETURN_IF_ERROR(link.ask({{"do", "exists"}, {"path", path}}, "exists", kPatience));
  return path;
}

Result<Given> open_given(const Job& job, program::Program program) {
  MOTLEY_ASSIGN(RankFiles ranks, RankFiles::open(job, std::move(program)));
  MOTLEY_ASSIGN(DataFiles data, DataFiles::open(job));
  return Given{std::move(ranks), std::move(data)};
}

/// Prepares what hosts receive, chooses where ranks keep their parts, and moves the latest there.
Result<Given> prepare_given(Hosts& hosts, Job& job) {
  MOTLEY_ASSIGN(program::Program program, read_program(job.program_path));
  if (job.changes) job.kept.clear();  // the owner of a part changes
  if (!job.kept.empty()) job.kept = kept_name(job.kept, program, job);
  MOTLEY_RETURN_IF_ERROR(gather_for(hosts, job, job.kept));
  return open_given(job, std::move(program));
}

}  // namespace

Result<void> place_checkpoint(HostLink& link, const std::string& folder) {
  std::error_code code;
  for (const auto& each : fs::directory_iterator(folder, code))
    MOTLEY_RETURN_IF_ERROR(link.share(
        each.path().string(),
        fmt::format("{}/{}", checkpoint_there(folder), each.path().filename().string())));
  return {};
}

std::string checkpoint_there(const std::string& folder) {
  return "run/checkpoint/" + fs::path(folder).filename().string();
}

Result<std::string> place_again(const Hosts& hosts, const std::string& host,
                                const Hosts::Reached& reached, const Job& running) {
  Job job = running;
  job.resume = false;  // it receives what the others have
  const Hosts::Way way = hosts.way_to(host, reached.hello);
  MOTLEY_RETURN_IF_ERROR(check_way(*reached.link, way.coordinator));
  MOTLEY_ASSIGN(program::Program program, read_program(job.program_path));
  MOTLEY_ASSIGN(const Given given, open_given(job, std::move(program)));
  return place_files(*reached.link, &given, host, way, job);
}

Result<std::vector<Seat>> place_job(Hosts& hosts, const std::string& path, Job& job) {
  std::set<std::string> remote = remote_hosts(job);
  MOTLEY_RETURN_IF_ERROR(hosts.reach(first_hosts(job)));
  for (const auto& [host, why] : hosts.reach_some(remote)) remote.erase(host);  // may come later
  MOTLEY_RETURN_IF_ERROR(choose_store(hosts, remote, job));
  for (const std::string& host : remote)
    if (job.changes)
      MOTLEY_RETURN_IF_ERROR(check_way(hosts.on(host), hosts.way_to(host).coordinator));
  MOTLEY_RETURN_IF_ERROR(check_ways(hosts, job));
  std::map<std::string, std::string> paths = {{"", path}};  // by host
  std::optional<Given> given;
  if (!job.program_path.empty() && !remote.empty()) {
    MOTLEY_ASSIGN(given, prepare_given(hosts, job));
  } else if (!job.program_path.empty()) {
    job.kept.clear();  // no rank is elsewhere
    MOTLEY_RETURN_IF_ERROR(gather_for(hosts, job, ""));
  }
  for (const std::string& host : remote) {
    MOTLEY_ASSIGN(paths[host], place_files(hosts.on(host), given ? &*given : nullptr, host,
                                           hosts.way_to(host), job));
  }
  std::vector<Seat> seats;
  std::set<std::string> reset = {""};
  for (const std::string& agent : choose_agents(hosts, job)) {
    const std::string& host = job.devices[seats.size()].host;
    seats.push_back({agent, paths[host]});
    if (seats.back().job.empty()) continue;
    if (!host.empty()) reset.insert(hosts.agents_on(host).front());  // it has the files
    if (!reset.insert(agent).second) continue;
    const std::string folder = fs::path(seats.back().job).parent_path().string();
    MOTLEY_RETURN_IF_ERROR(hosts.at(agent).send({{"do", "reset"}, {"run", folder}}));
  }
  return seats;
}

namespace {

/// Changes the job as a host has it; its local paths stay.
Result<void> change_job(HostLink& link, double patience, const std::function<void(Job&)>& change) {
  const Outbox outbox;
  const std::string name = fmt::format("host {}: job.json", link.host());
  MOTLEY_RETURN_IF_ERROR(link.fetch("run/job.json", outbox.folder(), patience));
  const auto text = read_file(outbox.folder() + "/job.json");
  if (!text) return runtime_error("run.job", name + " is missing");
  MOTLEY_ASSIGN(const Json json, parse_json(*text, name));
  MOTLEY_ASSIGN(Job there, job_from_json(json, name));
  change(there);
  return link.put_text(job_to_json(there).dump(), "run/job.json");
}

void add_devices(const Job& job, Job& there) {
  for (std::size_t rank = there.devices.size(); rank < job.devices.size(); ++rank)
    there.devices.push_back(job.devices[rank]);
}

}  // namespace

Result<void> place_device(Hosts& hosts, const Job& job, std::size_t rank) {
  constexpr double kAnswer = 5;  // seconds; everything else waits
  const std::string& host = job.devices[rank].host;
  if (host.empty() || hosts.agents_on(host).empty()) return {};
  return change_job(hosts.on(host), kAnswer, [&](Job& there) {
    add_devices(job, there);
    there.devices[rank] = job.devices[rank];
  });
}

Result<std::vector<Seat>> find_job(Hosts& hosts, Job& job) {
  std::map<std::string, std::string> paths;  // by host
  for (const std::string& host : remote_hosts(job)) {
    if (hosts.agents_on(host).empty()) continue;
    HostLink& link = hosts.on(host);
    MOTLEY_RETURN_IF_ERROR(change_job(link, kPatience, [&](Job& there) {
      there.changes->keys = job.changes->keys;
      there.changes->keys->address = hosts.way_to(host).coordinator;
      add_devices(job, there);
    }));
    paths[host] = link.scratch() + "/run/job.json";
  }
  std::vector<Seat> seats;
  for (const WorkerDevice& device : job.devices) seats.push_back({device.host, paths[device.host]});
  return seats;
}

Result<void> bring_traces(Hosts& hosts, const Job& job) {
  const bool may_be_lost = job.changes && job.changes->is_elastic;
  for (const std::string& host : remote_hosts(job)) {
    if (hosts.agents_on(host).empty()) continue;  // it was absent and did not come
    const auto come = hosts.on(host).fetch("run/trace", job.run_dir + "/trace", kPatience);
    if (!come && !may_be_lost) return come;
  }
  return {};
}

Result<void> publish_models(const Job& job) {
  const CheckpointStore store(job.run_dir);
  MOTLEY_ASSIGN(const std::optional<Checkpoint> latest,
                store.open_latest(TensorFiles::Extent::kSome));
  if (!latest || !latest->written.held.empty()) return {};
  EndModels models{latest->path, latest->state.best.has_value(), std::nullopt};
  MOTLEY_ASSIGN(const bool has_average, has_averages(latest->path));
  if (has_average) {
    MOTLEY_ASSIGN(const graph::Model model, graph::read_model(job.model_path));
    models.averages = canonical_names(model.graph);
  }
  return store.publish_all(models);
}

}  // namespace motley::run
