#include "motley/run/torch/reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "motley/base/json.h"

namespace motley::run {

Reporter::Reporter() {
  const int copy = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return;
  output_ = copy;
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

void Reporter::line(std::string text) const {
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(output_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads any more
    done += static_cast<std::size_t>(count);
  }
}

void Reporter::event(const std::string& name, Json fields) const {
  line(print_event(WorkerEvent{name, rank_, std::move(fields)}));
}

void Reporter::error(const Error& error, const std::string& instruction) const {
  event("error", Json{{"kind", error_kind_name(error.kind)},
                      {"code", error.code},
                      {"message", error.message},
                      {"instruction", instruction}});
}

void Reporter::result(const Json& json) const { line(json.dump()); }

}  // namespace motley::run
