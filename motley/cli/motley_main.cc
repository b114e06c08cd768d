#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "motley/cli/app.h"

extern char** environ;

int main(int argc, char** argv) {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  std::error_code code;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
  std::signal(SIGPIPE, SIG_IGN);
  return motley::cli::run_app({argv + 1, argv + argc}, code ? argv[0] : self.string(), environment);
}
