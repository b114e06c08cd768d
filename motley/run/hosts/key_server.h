#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/here.h"

namespace motley::run {

/// A key-value store for the processes of a job, in a process that outlives their loss. A shared
/// file would be corrupted by a process that dies while it writes, and a store in rank 0 would end
/// with rank 0. Serves in its own thread. Answers each request at once; clients wait by polling.
///
/// A connection begins with the word. Requests and answers follow, each a length of 4 bytes (little
/// endian) and so many bytes: an operation of one byte and its fields, each prefixed by its length.
///   s key value -> ""        g key -> 1 value, or 0     a key number -> number, the sum
///   d key -> 1 or 0          c key ... -> 1: all are there, or 0
///   x key expected value -> the value afterwards
class KeyServer {
 public:
  static Result<std::unique_ptr<KeyServer>> start(Callers callers = Callers::kThisMachine);
  ~KeyServer();
  KeyServer(const KeyServer&) = delete;
  KeyServer& operator=(const KeyServer&) = delete;
  int port() const { return port_; }
  const std::string& word() const { return word_; }

 private:
  struct Client {
    Descriptor socket;
    std::string heard, unsaid;
    bool is_known = false;
  };
  KeyServer(Descriptor socket, Pipe wake, int port, std::string word);
  void serve();
  bool hear(Client& client);
  std::string answer(const std::string& request);

  Descriptor socket_;
  Pipe wake_;  ///< closed: the thread ends
  int port_;
  std::string word_;
  std::map<std::string, std::string> keys_;
  std::vector<Client> clients_;
  std::thread thread_;
};

/// Packs fields of a request or an answer, each prefixed by its length.
std::string pack_fields(const std::vector<std::string>& fields);
/// Returns an empty list if the bytes are incomplete.
std::vector<std::string> unpack_fields(const std::string& bytes);

}  // namespace motley::run
