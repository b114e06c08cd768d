#include "motley/cli/context/context.h"

#include <fmt/format.h>

#include <cstdio>

#include "motley/base/json.h"

namespace motley::cli {

void Context::result(const std::string& text, const Json& object) const {
  if (json) {
    fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", text);
  }
  std::fflush(stdout);
}

void Context::note(const std::string& line) const {
  if (!quiet) fmt::print(stderr, "{}\n", line);
}

int report_error(const Context& context, const Error& error) {
  if (context.json) {
    const Json object = {{"error", {{"code", error.code}, {"message", error.message}}}};
    fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }
  fmt::print(stderr, "motley: {} [{}]\n", error.message, error.code);
  return exit_code(error);
}

}  // namespace motley::cli
