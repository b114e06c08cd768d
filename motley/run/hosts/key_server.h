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

/// A store of keys for the processes of a job, in a process that no loss of theirs ends: a file of
/// keys is spoilt by one that dies while it writes, and a store in rank 0 goes with it. Serves in a
/// thread of its own; each request is answered at once, waiting is asking again.
///
/// A connection begins with the word; then requests and answers, each a length of 4 bytes (little
/// endian) and so many bytes: an operation of one byte and its fields, each with its length before
/// it.
///   s key value -> ""        g key -> 1 value, or 0     a key number -> number, the sum
///   d key -> 1 or 0          c key ... -> 1: all are there, or 0
///   x key expected value -> what is there then
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

/// Fields, each with its length before it, of a request or an answer.
std::string pack_fields(const std::vector<std::string>& fields);
/// None: it is not whole.
std::vector<std::string> unpack_fields(const std::string& bytes);

}  // namespace motley::run
