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

/// Who may connect: processes of this machine, or whoever reaches it.
enum class Callers { kThisMachine, kAll };
/// A socket that listens, without blocking who looks at it; `port` 0: any free one. Runtime error
/// `run.port` with the reason alone.
struct Listening {
  Descriptor socket;
  int port = 0;
};
Result<Listening> listen_here(int port, int backlog, Callers callers);

/// A connection to a host, by the first of its addresses that takes one, on which connecting,
/// sending and receiving each take `seconds` at most. Runtime error `run.connect` with the reason
/// alone.
Result<Descriptor> connect_to(const std::string& host, int port, double seconds);

/// A TCP port that nobody uses at this moment.
Result<int> find_free_port();

}  // namespace motley::run
