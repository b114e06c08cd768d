#pragma once

#include <map>
#include <string>
#include <vector>

namespace motley::cli {

/// The whole command line: parses flags, runs a verb, prints what it returns. `arguments` without
/// the program's name; `program` is its path (motley-worker lies beside it). Returns the exit code.
int run_app(std::vector<std::string> arguments, const std::string& program,
            const std::map<std::string, std::string>& environment);

}  // namespace motley::cli
