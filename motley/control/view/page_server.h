#pragma once

#include <memory>
#include <string>

#include "motley/base/result.h"

namespace motley::control {

/// Serves one page and its changes to this machine's browsers: GET / and the event stream GET
/// /events, nothing else. Listens on 127.0.0.1 and answers only for that name or "localhost", so
/// that no other site can make a browser read it. Has its own thread; members may be called from
/// any.
class PageServer {
 public:
  /// 0: any free port. Usage error `serve.port`: the port is in use.
  static Result<std::unique_ptr<PageServer>> start(int port);
  virtual ~PageServer() = default;
  virtual int port() const = 0;
  virtual void show(std::string page) = 0;
  /// Sends an event to all listeners. `data` has no line breaks.
  virtual void tell(const std::string& name, const std::string& data) = 0;
  /// Waits up to a second until all is sent.
  virtual void flush() = 0;
};

}  // namespace motley::control
