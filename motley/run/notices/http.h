#pragma once

#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/notices/http_answer.h"

namespace motley::run {

/// What a server is asked.
struct HttpAsk {
  std::string host;  ///< a name, or an IPv4 address
  int port = 80;
  std::string method = "GET";  ///< without a body: GET, PUT
  std::string path = "/";
  std::vector<std::pair<std::string, std::string>> headers;  ///< beside Host and Connection
};

/// How long somebody waits for a server.
struct HttpPatience {
  Seconds connect{2};  ///< finding the address included
  Seconds answer{5};   ///< from then on, until the answer is there
  int wake = -1;       ///< a descriptor; once something can be read there, nothing is waited for
};

/// Asks over a connection of its own, without TLS, and follows no redirection. Never waits longer
/// than told, neither for a resolver. Runtime errors: `run.http`, with host and port and what
/// happened; `run.woken`.
Result<HttpAnswer> ask_http(const HttpAsk& ask, const HttpPatience& patience);

}  // namespace motley::run
