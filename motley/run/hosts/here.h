#pragma once

#include <string>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"

namespace motley::run {

/// Does the name of a host, or its address, mean this machine? "", "localhost", its own name, an
/// address of one of its interfaces, or a name of such an address.
bool is_this_machine(const std::string& host);

/// This machine's name.
std::string own_host_name();

/// Equal for processes that see the same files, and each other.
std::string machine_identity();

/// That only who was told it knows: 32 hexadecimal digits of the system's source.
std::string random_word();

/// A socket that listens on this machine's loopback interface, without blocking who looks at it;
/// `port` 0: any free one. Runtime error `run.port` with the reason alone.
struct Listening {
  Descriptor socket;
  int port = 0;
};
Result<Listening> listen_here(int port, int backlog);

/// A TCP port that nobody uses at this moment.
Result<int> find_free_port();

}  // namespace motley::run
