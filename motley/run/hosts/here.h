#pragma once

#include <string>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"

namespace motley::run {

/// Tells whether a host's name or address means this machine: "", "localhost", its own name, an
/// address of one of its interfaces, or a name of such an address.
bool is_this_machine(const std::string& host);

std::string own_host_name();

/// Returns a name that is equal for processes that see the same files and each other.
std::string machine_identity();

/// Returns a secret: 32 hexadecimal digits from the system's random source.
std::string random_word();

enum class Callers { kThisMachine, kAll };
/// A listening, non-blocking socket. `port` 0: any. Runtime error `run.port`, the reason alone.
struct Listening {
  Descriptor socket;
  int port = 0;
};
Result<Listening> listen_here(int port, int backlog, Callers callers);

/// Connects to a host by the first of its addresses that accepts. Connecting, sending and receiving
/// each take at most `seconds`. Runtime error `run.connect`, with the reason alone.
Result<Descriptor> connect_to(const std::string& host, int port, double seconds);

Result<int> find_free_port();

}  // namespace motley::run
