#include "motley/run/torch/worker_session.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"
#include "motley/run/checkpoints/rank_files.h"
#include "motley/run/launch/processors.h"
#include "motley/run/torch/cuda_library.h"
#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/run/torch/exchange/leveled_communicator.h"
#include "motley/run/torch/torch_version.h"

namespace motley::run {
namespace {

struct JobTexts {
  std::string job, program;
  std::vector<std::string> evaluations;  ///< programs
};

Result<std::size_t> count_evaluations(const std::string& job_text, const std::string& where) {
  MOTLEY_ASSIGN(const Json json, parse_json(job_text, where));
  MOTLEY_ASSIGN(const Job job, job_from_json(json, where));
  return job.evaluation ? job.evaluation->programs.size() : 0;
}

Result<JobTexts> read_texts(const std::string& job_path, int rank) {
  JobTexts texts;
  MOTLEY_ASSIGN(texts.job, read_file(job_path));
  MOTLEY_ASSIGN(const Json json, parse_json(texts.job, job_path));
  MOTLEY_ASSIGN(const Job job, job_from_json(json, job_path));
  const RankFolder own(job.rank_files, rank);
  const bool is_own = !job.rank_files.empty();
  if (!job.program_path.empty()) {
    MOTLEY_ASSIGN(texts.program, read_file(is_own ? own.program() : job.program_path));
  }
  for (std::size_t i = 0; job.evaluation && i < job.evaluation->programs.size(); ++i) {
    MOTLEY_ASSIGN(texts.evaluations.emplace_back(),
                  read_file(is_own ? own.evaluation(i) : job.evaluation->programs[i]));
  }
  return texts;
}

/// Rank 0 puts job and program into the store; the others need no file of them.
Result<JobTexts> share_texts(const WorkerArguments& arguments, Rendezvous& rendezvous) {
  if (rendezvous.rank() == 0) {
    MOTLEY_ASSIGN(JobTexts texts, read_texts(arguments.job_path, 0));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("job", texts.job));
    MOTLEY_RETURN_IF_ERROR(rendezvous.set("program", texts.program));
    for (std::size_t i = 0; i < texts.evaluations.size(); ++i)
      MOTLEY_RETURN_IF_ERROR(rendezvous.set(fmt::format("evaluation/{}", i), texts.evaluations[i]));
    return texts;
  }
  constexpr Seconds kPlanning{600};  // rank 0 may still be measuring and planning
  JobTexts texts;
  MOTLEY_ASSIGN(texts.job, rendezvous.get("job", kPlanning));
  MOTLEY_ASSIGN(texts.program, rendezvous.get("program", kPlanning));
  MOTLEY_ASSIGN(const std::size_t evaluations, count_evaluations(texts.job, "job"));
  for (std::size_t i = 0; i < evaluations; ++i) {
    MOTLEY_ASSIGN(texts.evaluations.emplace_back(),
                  rendezvous.get(fmt::format("evaluation/{}", i), kPlanning));
  }
  return texts;
}

Result<void> parse_texts(const JobTexts& texts, const std::string& where, WorkerSession& session) {
  MOTLEY_ASSIGN(const Json json, parse_json(texts.job, where));
  MOTLEY_ASSIGN(session.job, job_from_json(json, where));
  for (std::size_t i = 0; i < texts.evaluations.size(); ++i) {
    MOTLEY_ASSIGN(
        session.evaluations.emplace_back(),
        program::parse_program(texts.evaluations[i], session.job.evaluation->programs[i]));
  }
  if (texts.program.empty()) return {};
  const std::string& path = session.job.program_path;
  MOTLEY_ASSIGN(session.program, program::parse_program(texts.program, path));
  const auto& devices = session.program.devices;
  if (session.job.changes) return {};  // the job's devices are found by name
  const bool same = std::equal(
      devices.begin(), devices.end(), session.job.devices.begin(), session.job.devices.end(),
      [](const program::DeviceProgram& program, const WorkerDevice& device) {
        return program.device == device.name;
      });
  if (same) return {};
  return stale_error("run.stale-program",
                     fmt::format("{}: its devices are not those of {}; plan again", path, where));
}

RendezvousOptions rendezvous_options(const WorkerArguments& arguments, const Job& job, int rank) {
  RendezvousOptions options;
  options.rank = rank;
  options.size = static_cast<int>(job.devices.size());
  options.file = job.run_dir + "/rendezvous";
  if (job.changes) options.keys = job.changes->keys;
  options.place = arguments.place;
  if (job.store) {
    RankPlace place{.rank = rank, .size = options.size};
    place.master_address = job.store->address;
    place.master_port = job.store->port;
    place.attempt = job.store->secret;
    place.source = "the job's store";
    options.place = std::move(place);
  }
  options.timeout = 10 * job.timeout;
  return options;
}

/// Under an external launcher the job comes through the store, so the store comes first.
Result<void> open_launched(const WorkerArguments& arguments, WorkerSession& session) {
  const RankPlace& place = *arguments.place;
  session.rank = place.rank;
  RendezvousOptions options;
  options.rank = place.rank;
  options.size = place.size;
  options.place = place;
  options.timeout = Seconds(300);
  MOTLEY_ASSIGN(session.rendezvous, Rendezvous::open(options));
  MOTLEY_ASSIGN(const JobTexts texts, share_texts(arguments, *session.rendezvous));
  MOTLEY_RETURN_IF_ERROR(parse_texts(texts, "job", session));
  session.size = static_cast<int>(session.job.devices.size());
  if (place.size < session.size)
    return usage_error("run.ranks",
                       fmt::format("the launcher started {} ranks, the plan uses {} devices; start "
                                   "one rank a device",
                                   place.size, session.size));
  session.is_idle = place.rank >= session.size;
  session.rendezvous->set_size(session.size);
  return {};
}

/// Tells whether no other process takes part, or will.
bool is_alone(const WorkerSession& session) {
  return session.size == 1 && !(session.job.changes && session.job.changes->is_elastic);
}

Result<void> open_local(const WorkerArguments& arguments, WorkerSession& session) {
  MOTLEY_ASSIGN(const JobTexts texts, read_texts(arguments.job_path, arguments.rank.value_or(0)));
  MOTLEY_RETURN_IF_ERROR(parse_texts(texts, arguments.job_path, session));
  session.rank = arguments.rank.value_or(0);
  session.size = static_cast<int>(session.job.devices.size());
  if (session.rank < 0 || session.rank >= session.size)
    return usage_error("run.ranks", fmt::format("--rank: found {}, wanted 0 to {}", session.rank,
                                                session.size - 1));
  if (is_alone(session)) return {};
  MOTLEY_ASSIGN(session.rendezvous,
                Rendezvous::open(rendezvous_options(arguments, session.job, session.rank)));
  return {};
}

/// Returns the rank's own program, if any, and its evaluation programs.
std::vector<const program::DeviceProgram*> own_programs(const WorkerSession& session) {
  const auto rank = static_cast<std::size_t>(session.rank);
  std::vector<const program::DeviceProgram*> own;
  if (!session.program.devices.empty()) own.push_back(&session.program.devices[rank]);
  for (const program::Program& evaluation : session.evaluations)
    own.push_back(&evaluation.devices[rank]);
  return own;
}

std::set<std::pair<int, int>> find_pairs(const WorkerSession& session) {
  std::set<std::pair<int, int>> pairs(session.measured_pairs.begin(), session.measured_pairs.end());
  for (const program::DeviceProgram* own : own_programs(session))
    for (const program::Strand& strand : program::find_strands(*own).all) {
      if (strand.lane != Lane::kPeer) continue;
      if (strand.direction == program::Direction::kSend)
        pairs.emplace(session.rank, strand.peer.value);
      else
        pairs.emplace(strand.peer.value, session.rank);
    }
  return pairs;
}

CommunicatorOptions communicator_options(const WorkerSession& session) {
  CommunicatorOptions options;
  options.timeout = session.job.timeout;
  options.shared_memory = session.job.transport != "gloo";
  for (const program::Group& group : session.program.groups) {
    GroupOptions next;
    for (const Rank rank : group.members) next.members.push_back(rank.value);
    next.link = group_link(session.job.devices, next.members);
    options.groups.push_back(std::move(next));
  }
  for (const auto& [source, target] : find_pairs(session))
    options.pairs.push_back({source, target, group_link(session.job.devices, {source, target})});
  return options;
}

/// Tells whether a member uses the hierarchical method in its group; then all do. A member without
/// instructions is being measured and may use any.
bool is_hierarchical(const program::Program& program, int rank, GroupId group) {
  const auto has_levels = [&](const program::Instruction& instruction) {
    return instruction.group == group &&
           program::find_method(instruction) == ExchangeMethod::kHierarchical;
  };
  if (program.devices.empty()) return true;
  const auto& own = program.devices[static_cast<std::size_t>(rank)].instructions;
  return std::any_of(own.begin(), own.end(), has_levels);
}

/// Returns the levels of groups with hierarchical exchanges; adds the groups that they need.
std::map<GroupId, Levels> add_levels(const WorkerSession& session, CommunicatorOptions& options) {
  const std::vector<std::string> hosts = session.hosts();
  std::map<GroupId, Levels> all;
  const std::size_t own_groups = options.groups.size();
  for (std::size_t i = 0; i < own_groups; ++i) {
    const GroupId id(static_cast<std::int64_t>(i));
    const std::vector<int> members = options.groups[i].members;
    Levels levels = find_levels(members, hosts, session.rank);
    if (levels.hosts.empty()) continue;
    // Groups have the same numbers on all ranks, even on those without such exchanges.
    const bool is_used = is_hierarchical(session.program, session.rank, id);
    const auto next = static_cast<std::int64_t>(options.groups.size());
    for (std::vector<int>& group : make_level_groups(members, levels, next)) {
      const EmulatedLink link = group_link(session.job.devices, group);
      options.groups.push_back({is_used ? std::move(group) : std::vector<int>(), link});
    }
    if (is_used) all.emplace(id, std::move(levels));
  }
  return all;
}

}  // namespace

bool WorkerSession::is_elsewhere(int rank) const {
  return has_own_directories(job) &&
         job.devices[static_cast<std::size_t>(rank)].host != job.devices[0].host;
}

std::vector<std::string> WorkerSession::hosts() const {
  std::vector<std::string> hosts;
  for (const WorkerDevice& device : job.devices) hosts.push_back(device.host);
  return hosts;
}

Result<void> set_up_device(WorkerDevice& device) {
  if (device.processor >= 0) keep_to_processor(device.processor);  // threads inherit it
  at::set_num_threads(device.threads);
  if (device.kind != "cuda") return {};
  MOTLEY_ASSIGN(const CudaLibrary* cuda, load_cuda());
  set_tf32(device.tf32);
  MOTLEY_ASSIGN(const std::vector<CudaDevice> found, cuda->devices());
  MOTLEY_ASSIGN(device.local_index, find_cuda_index(device, found));
  return cuda->use_device(device.local_index, device.memory);
}

void set_tf32(bool may) {
  at::globalContext().setAllowTF32CuBLAS(may);
  at::globalContext().setAllowTF32CuDNN(may);
}

bool can_use_nccl(const std::vector<WorkerDevice>& devices) {
  std::set<std::pair<std::string, std::string>> gpus;
  for (const WorkerDevice& device : devices)
    if (device.kind == "cuda")
      gpus.emplace(device.uuid.empty() ? device.host : "",
                   device.uuid.empty() ? std::to_string(device.local_index) : device.uuid);
  return gpus.size() == devices.size();
}

void add_sequences(const program::DeviceProgram& program, int rank, ExchangeSequences& sequences) {
  for (const program::Instruction& instruction : program.instructions) {
    if (!program::is_exchange(instruction)) continue;
    const int peer = program::peer_of(instruction).value;
    if (instruction.group.is_none()) {
      const bool is_send = instruction.op == program::kSend;
      const program::Buffer& buffer = program.buffer(
          is_send ? std::get<BufferId>(instruction.arguments[0].value) : instruction.outputs[0]);
      sequences[is_send ? std::vector{rank, peer} : std::vector{peer, rank}] +=
          fmt::format("{}x{}\n", dtype_name(buffer.dtype), buffer.elements());
      continue;
    }
    std::string& sequence = sequences[{instruction.group.value}];
    sequence += instruction.full_name();
    if (const auto parts = program::find_exchange_parts(instruction)) {
      // Each rank has its own part; the program's check verified that they fit.
      sequence += fmt::format(" {}\n", dtype_name(program.buffer(parts->value).dtype));
      continue;
    }
    program::for_each_buffer(instruction.arguments, [&](BufferId id) {
      const program::Buffer& buffer = program.buffer(id);
      sequence += fmt::format(" {}x{}", dtype_name(buffer.dtype), buffer.elements());
    });
    sequence += '\n';
  }
}

Result<void> compare_sequences(const std::vector<ExchangeSequences>& of_rank,
                               const std::vector<program::Group>& groups) {
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    for (const auto& [name, sequence] : of_rank[rank]) {
      std::vector<int> members = name;
      if (name.size() == 1) {
        members.clear();
        for (const Rank each : groups.at(static_cast<std::size_t>(name[0])).members)
          members.push_back(each.value);
      }
      for (const int member : members) {
        const ExchangeSequences& theirs = of_rank.at(static_cast<std::size_t>(member));
        const auto found = theirs.find(name);
        if (found != theirs.end() && found->second == sequence) continue;
        return runtime_error(
            "run.disagreement",
            fmt::format("what {} exchange: rank {} has {}, rank {} has {}",
                        name.size() == 1
                            ? fmt::format("the members of group {}", name[0])
                            : fmt::format("rank {}, which sends, and rank {}", name[0], name[1]),
                        member, found == theirs.end() ? "nothing" : found->second, rank, sequence));
      }
    }
  return {};
}

namespace {

/// All ranks share a hash of their exchanges and compare all of them.
Result<void> agree_on_exchanges(WorkerSession& session) {
  ExchangeSequences own;
  for (const program::DeviceProgram* program : own_programs(session))
    add_sequences(*program, session.rank, own);
  Json json = Json::array();
  for (const auto& [name, sequence] : own) json.push_back({name, hash_hex(sequence)});
  MOTLEY_ASSIGN(
      const std::vector<std::string> all,
      session.rendezvous->share("exchanges", json.dump(), session.rendezvous->options().timeout));
  std::vector<ExchangeSequences> of_rank;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    MOTLEY_ASSIGN(const Json said, parse_json(all[rank], fmt::format("rank {}", rank)));
    ExchangeSequences& theirs = of_rank.emplace_back();
    for (const Json& each : said)
      theirs.emplace(each.at(0).get<std::vector<int>>(), each.at(1).get<std::string>());
  }
  return compare_sequences(of_rank, session.program.groups);
}

}  // namespace

Result<std::unique_ptr<WorkerSession>> open_session(const WorkerArguments& arguments,
                                                    Reporter& reporter) {
  auto session = std::make_unique<WorkerSession>();
  MOTLEY_RETURN_IF_ERROR(arguments.place ? open_launched(arguments, *session)
                                         : open_local(arguments, *session));
  session->process = session->rank;
  session->joins = arguments.joins;
  reporter.set_rank(session->rank);
  if (session->is_idle) return session;
  MOTLEY_RETURN_IF_ERROR(
      set_up_device(session->job.devices[static_cast<std::size_t>(session->rank)]));
  if (is_alone(*session)) session->rendezvous.reset();
  return session;
}

Result<void> join_groups(WorkerSession& session) {
  if (!session.rendezvous) return {};
  const std::string minor = loaded_torch_version().substr(0, loaded_torch_version().rfind('.'));
  MOTLEY_RETURN_IF_ERROR(session.rendezvous->agree("PyTorch version", minor));
  MOTLEY_RETURN_IF_ERROR(agree_on_exchanges(session));
  CommunicatorOptions options = communicator_options(session);
  std::map<GroupId, Levels> levels = add_levels(session, options);
  if (!can_use_nccl(session.job.devices)) {
    MOTLEY_ASSIGN(auto host, make_host_communicator(*session.rendezvous, options));
    session.communicator = with_levels(std::move(host), std::move(levels));
    return {};
  }
  MOTLEY_ASSIGN(const CudaLibrary* cuda, load_cuda());
  MOTLEY_ASSIGN(auto nccl, cuda->make_nccl_communicator(*session.rendezvous, options,
                                                        session.device().local_index));
  session.communicator = with_levels(std::move(nccl), std::move(levels));
  return {};
}

}  // namespace motley::run
