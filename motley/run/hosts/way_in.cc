#include "motley/run/hosts/way_in.h"

#include <fmt/format.h>

namespace motley::run {
namespace {

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Each starts a shell with the script that follows. A step or an MPI process is bound to one core
// unless told otherwise; the agent's workers need the whole allocation.
std::vector<std::string> way_words(WayIn way, const std::string& host) {
  if (way == WayIn::kSlurm)
    return {"srun",    "--overlap",          "--nodes=1", "--ntasks=1", "--cpu-bind=none",
            "--quiet", "--nodelist=" + host, "sh",        "-c"};
  if (way == WayIn::kMpi)
    return {"env",
            "OMPI_MCA_hwloc_base_binding_policy=none",
            "HYDRA_BINDING=none",
            "mpirun",
            "-n",
            "1",
            "--host",
            host,
            "sh",
            "-c"};
  return {"ssh", "-T",
          "-o",  "BatchMode=yes",
          "-o",  "ConnectTimeout=10",
          "-o",  "ServerAliveInterval=5",
          "-o",  "ServerAliveCountMax=3",
          host};
}

}  // namespace

Result<WayIn> find_way_in(std::string_view word) {
  if (word == "ssh") return WayIn::kSsh;
  if (word == "slurm") return WayIn::kSlurm;
  if (word == "mpi") return WayIn::kMpi;
  return usage_error("cli.launcher",
                     fmt::format("--launcher: found '{}', wanted ssh, slurm or mpi", word));
}

std::vector<std::string> agent_command(WayIn way, const std::string& host,
                                       const std::string& program) {
  const std::string here = shell_quoted(program);
  std::vector<std::string> words = way_words(way, host);
  words.push_back(
      fmt::format("if [ -x {0} ]; then exec {0} agent; else exec motley agent; fi", here));
  return words;
}

}  // namespace motley::run
