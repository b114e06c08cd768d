#pragma once

#include <memory>
#include <string>

#include "motley/base/result.h"

namespace motley::control {

/// Serves one page, and what changes of it, to browsers of this machine: GET / and the stream of
/// events GET /events; nothing else, and nothing can be asked of it. It listens on 127.0.0.1 and
/// answers requests for that name or "localhost" alone, so that no other site can have a browser
/// read it. Everything happens in a thread of its own; the members may be called from any thread.
class PageServer {
 public:
  /// 0: any port that is free. A usage error (serve.port) where it is in use.
  static Result<std::unique_ptr<PageServer>> start(int port);
  virtual ~PageServer() = default;
  virtual int port() const = 0;
  /// What GET / gives from now on.
  virtual void show(std::string page) = 0;
  /// An event for all who listen. `data` has no line breaks.
  virtual void tell(const std::string& name, const std::string& data) = 0;
  /// Waits until what was told has been sent to all, at most a second.
  virtual void flush() = 0;
};

}  // namespace motley::control
