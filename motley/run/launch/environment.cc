#include "motley/run/launch/environment.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/text.h"

namespace motley::run {
namespace {

using Variables = std::map<std::string, std::string>;
// A list such as [0-999999999] is a typing error and must not fill memory.
constexpr std::size_t kMostNodes = 100'000;
constexpr int kDefaultPort = 29500;

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

bool all_set(const Variables& variables, std::initializer_list<const char*> names) {
  return std::all_of(names.begin(), names.end(),
                     [&](const char* name) { return !value_of(variables, name).empty(); });
}

/// Returns the first of `names` that is set, as a number in [0, 2^31); else `otherwise`.
Result<int> number_of(const Variables& variables, std::initializer_list<const char*> names,
                      int otherwise = 0) {
  for (const char* name : names) {
    const std::string text = value_of(variables, name);
    if (text.empty()) continue;
    const auto number = find_integer(text);
    if (!number || *number < 0 || *number > INT32_MAX)
      return usage_error("run.environment",
                         fmt::format("{}: found '{}', wanted a number from 0 on", name, text));
    return static_cast<int>(*number);
  }
  return otherwise;
}

/// Returns a job's default port: equal on all its ranks, rarely that of another job.
int port_of_job(int job_id) { return 20000 + job_id % 20000; }

Result<void> read_master(const Variables& variables, RankPlace& place) {
  const std::string address = value_of(variables, "MASTER_ADDR");
  if (!address.empty()) place.master_address = address;
  MOTLEY_ASSIGN(place.master_port, number_of(variables, {"MASTER_PORT"}, place.master_port));
  return {};
}

Result<RankPlace> from_torchrun(const Variables& variables) {
  RankPlace place;
  MOTLEY_ASSIGN(place.rank, number_of(variables, {"RANK"}));
  MOTLEY_ASSIGN(place.size, number_of(variables, {"WORLD_SIZE"}));
  MOTLEY_ASSIGN(place.local_rank, number_of(variables, {"LOCAL_RANK"}));
  MOTLEY_RETURN_IF_ERROR(read_master(variables, place));
  place.agent_store = value_of(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = value_of(variables, "TORCHELASTIC_RUN_ID") + "/" +
                  value_of(variables, "TORCHELASTIC_RESTART_COUNT");
  place.source = "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT";
  if (place.agent_store) place.source += " and torchrun's store";
  return place;
}

Result<RankPlace> from_slurm(const Variables& variables) {
  RankPlace place;
  MOTLEY_ASSIGN(place.rank, number_of(variables, {"SLURM_PROCID"}));
  MOTLEY_ASSIGN(place.size, number_of(variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}));
  MOTLEY_ASSIGN(place.local_rank, number_of(variables, {"SLURM_LOCALID"}));
  const std::string step_list = value_of(variables, "SLURM_STEP_NODELIST");
  MOTLEY_ASSIGN(
      const std::vector<std::string> nodes,
      expand_node_list(step_list.empty() ? value_of(variables, "SLURM_JOB_NODELIST") : step_list));
  place.master_address = nodes.front();
  MOTLEY_ASSIGN(const int job_id, number_of(variables, {"SLURM_JOB_ID"}));
  place.master_port = port_of_job(job_id);
  MOTLEY_RETURN_IF_ERROR(read_master(variables, place));
  place.attempt = "slurm-" + value_of(variables, "SLURM_JOB_ID") + "." +
                  value_of(variables, "SLURM_STEP_ID") + "/" +
                  value_of(variables, "SLURM_RESTART_COUNT");
  place.source = fmt::format("SLURM_PROCID, SLURM_STEP_NUM_TASKS; rank 0 on {} port {}",
                             place.master_address, place.master_port);
  return place;
}

struct MpiNames {
  const char *what, *rank, *size, *local_rank, *local_size;
};

Result<RankPlace> from_mpi(const Variables& variables, const MpiNames& names) {
  RankPlace place;
  MOTLEY_ASSIGN(place.rank, number_of(variables, {names.rank}));
  MOTLEY_ASSIGN(place.size, number_of(variables, {names.size}));
  MOTLEY_ASSIGN(place.local_rank, number_of(variables, {names.local_rank}));
  MOTLEY_ASSIGN(const int local_size, number_of(variables, {names.local_size}));
  // All ranks are on this host: the only case in which MPI's variables imply the address.
  if (place.size == local_size || place.size == 1) place.master_address = "127.0.0.1";
  place.master_port = kDefaultPort;
  MOTLEY_RETURN_IF_ERROR(read_master(variables, place));
  if (place.master_address.empty())
    return usage_error("run.environment",
                       fmt::format("{} and {} say rank {} of {}, but MPI gives no address of rank "
                                   "0; set MASTER_ADDR to the first host (mpirun -x MASTER_ADDR)",
                                   names.rank, names.size, place.rank, place.size));
  place.source = fmt::format("{} ({}, {}); rank 0 on {} port {}", names.what, names.rank,
                             names.size, place.master_address, place.master_port);
  return place;
}

Result<void> expand_ranges(const std::string& prefix, std::string_view ranges,
                           std::vector<std::string>& names) {
  for (const std::string_view range : split(ranges, ',')) {
    const std::size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const auto first = find_integer(low);
    const auto last = dash == std::string_view::npos ? first : find_integer(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first ||
        *last - *first >= static_cast<std::int64_t>(kMostNodes))
      return usage_error("run.node-list", fmt::format("node list: found '[{}]', wanted ranges like "
                                                      "[01-03,7]",
                                                      ranges));
    for (std::int64_t number = *first; number <= *last && names.size() <= kMostNodes; ++number)
      // SLURM keeps leading zeros: node01, not node1.
      names.push_back(fmt::format("{}{:0{}}", prefix, number, low.size()));
  }
  return {};
}

/// Expands one name; more name may follow a bracket ("rack[1-2]node[1-2]").
Result<void> expand_name(const std::string& prefix, std::string_view rest,
                         std::vector<std::string>& names) {
  const std::size_t open = rest.find('[');
  if (open == std::string_view::npos) {
    if (prefix.empty() && rest.empty())
      return usage_error("run.node-list", "node list: found an empty name");
    names.push_back(prefix + std::string(rest));
    return {};
  }
  const std::size_t close = rest.find(']', open);
  if (close == std::string_view::npos)
    return usage_error("run.node-list", fmt::format("node list: '{}' lacks a ']'", rest));
  std::vector<std::string> heads;
  MOTLEY_RETURN_IF_ERROR(expand_ranges(prefix + std::string(rest.substr(0, open)),
                                       rest.substr(open + 1, close - open - 1), heads));
  for (const std::string& head : heads) {
    if (names.size() > kMostNodes) break;
    MOTLEY_RETURN_IF_ERROR(expand_name(head, rest.substr(close + 1), names));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view list) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    MOTLEY_RETURN_IF_ERROR(expand_name("", list.substr(begin, i - begin), names));
    begin = i + 1;
  }
  if (names.size() > kMostNodes)
    return usage_error("run.node-list", fmt::format("node list: more than {} names", kMostNodes));
  return names;
}

Result<std::optional<RankPlace>> find_rank_place(const Variables& variables) {
  Result<RankPlace> place = RankPlace{};
  // torchrun first: it may run under SLURM or MPI, and then its ranks count.
  if (all_set(variables, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})) {
    place = from_torchrun(variables);
  } else if (all_set(variables, {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_NODELIST"})) {
    place = from_slurm(variables);
  } else if (all_set(variables, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    place = from_mpi(variables, {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  } else if (all_set(variables, {"PMI_RANK", "PMI_SIZE"})) {
    place = from_mpi(variables,
                     {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  } else {
    return std::nullopt;
  }
  if (!place) return tl::make_unexpected(std::move(place).error());
  if (place->size < 1 || place->rank >= place->size)
    return usage_error("run.environment",
                       fmt::format("{}: found rank {} of {} ranks, wanted a rank below the size",
                                   place->source, place->rank, place->size));
  // The store's keys begin with it: they cannot be found without it.
  if (const std::string secret = value_of(variables, "MOTLEY_SECRET"); !secret.empty())
    place->attempt += "/" + secret;
  place->interface = value_of(variables, "GLOO_SOCKET_IFNAME");
  return std::optional<RankPlace>(std::move(*place));
}

}  // namespace motley::run
