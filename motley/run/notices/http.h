#pragma once

#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/notices/http_answer.h"

namespace motley::run {

struct HttpAsk {
  std::string host;  ///< a name, or an IPv4 address
  int port = 80;
  std::string method = "GET";  ///< without a body: GET, PUT
  std::string path = "/";
  std::vector<std::pair<std::string, std::string>> headers;  ///< besides Host and Connection
};

/// How long to wait for a server.
struct HttpPatience {
  Seconds connect{2};  ///< including name resolution
  Seconds answer{5};   ///< from the connection to the complete answer
  int wake = -1;       ///< descriptor that ends the wait when readable
};

/// Sends a request over its own connection, without TLS or redirections. Never waits longer than
/// allowed, even for a resolver. Runtime errors: `run.http`, with host and port; `run.woken`.
Result<HttpAnswer> ask_http(const HttpAsk& ask, const HttpPatience& patience);

}  // namespace motley::run
