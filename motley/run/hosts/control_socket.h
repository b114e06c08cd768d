#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/here.h"

namespace motley::run {

/// Accepts questions about a running job: a port of the loopback interface and a word known only to
/// those who can read the run directory. A question is a line of JSON with `word`, the answer a
/// line of JSON; one of each per connection. Never blocks its owner.
class ControlSocket {
 public:
  struct Question {
    int caller = 0;
    bool knows_word = false;
    std::string text;  ///< JSON; not checked
  };
  /// Opens a port (0: any free one). Writes address and word into `file`, which the destructor
  /// removes. Runtime error `run.port`: the port is in use.
  static Result<std::unique_ptr<ControlSocket>> open(int port, const std::string& file,
                                                     Callers callers = Callers::kThisMachine);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  int port() const { return port_; }
  const std::string& word() const { return word_; }
  /// Returns new questions. Drops a question that is too long, comes too slowly or is not answered
  /// in time. A caller may shut its own end after asking.
  std::vector<Question> take();
  void answer(int caller, const std::string& text);

 private:
  struct Caller {
    Descriptor socket;
    std::string heard;
    Clock::time_point came;
    bool has_asked = false;
  };
  ControlSocket(Descriptor socket, int port, std::string file, std::string word)
      : socket_(std::move(socket)), port_(port), file_(std::move(file)), word_(std::move(word)) {}
  void let_in();

  Descriptor socket_;
  int port_;
  std::string file_, word_;
  int next_ = 0;
  std::map<int, Caller> callers_;
};

struct ControlSocketAddress {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string word;
};
/// Reads the address. Usage error `run.not-elastic`: no job there can be asked.
Result<ControlSocketAddress> read_control_socket(const std::string& file);

/// Asks with the word, for at most `seconds`. Runtime error `run.control_socket`: no answer.
Result<Json> ask_control_socket(const ControlSocketAddress& address, Json question, double seconds);

}  // namespace motley::run
