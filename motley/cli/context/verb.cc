#include "motley/cli/context/verb.h"

#include "motley/base/text.h"

namespace motley::cli {

void put_under(const std::string& heading, std::initializer_list<std::string_view> names,
               std::vector<Flag>& flags) {
  for (const std::string_view name : names) {
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& each) {
      const auto words = split(each.names, ',');
      return std::find(words.begin(), words.end(), name) != words.end();
    });
    MOTLEY_CHECK(flag != flags.end());
    flag->group = heading;
  }
}

std::vector<Flag> common_flags(Context& context) {
  return {{"--json", &context.json, "one JSON object on stdout"},
          {"-q,--quiet", &context.quiet, "no progress and notes"},
          {"--launcher", &context.launcher,
           "how other hosts are reached: ssh (default), slurm (srun, in an allocation) or mpi "
           "(mpirun)"},
          {"--print", &context.print_phase,
           "print a phase's result: load, price, search, synth, simulate"},
          {"--stop-after", &context.stop_after, "stop after that phase"},
          {"--dump-dir", &context.dump_dir, "write every phase's result there"}};
}

}  // namespace motley::cli
