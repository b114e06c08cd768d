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

/// Where others ask something of a running job: a port of this machine's loopback interface and a
/// word that only those know who can read the run directory. A question is a line of JSON with
/// `word`, the answer a line of JSON; one each a connection. Never blocks whoever looks at it.
class ControlSocket {
 public:
  struct Question {
    int caller = 0;
    bool knows_word = false;
    std::string text;  ///< JSON; not checked
  };
  /// `port` 0: any free one. Writes address and word into `file`, which is gone with the object.
  /// Runtime error `run.port` where somebody else has it.
  static Result<std::unique_ptr<ControlSocket>> open(int port, const std::string& file,
                                                     Callers callers = Callers::kThisMachine);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  int port() const { return port_; }
  const std::string& word() const { return word_; }
  /// Questions that have come since. What is too long or comes too slowly is dropped, and so is a
  /// question that is not answered in time. A caller may shut its own end when it has asked.
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

/// Of a control socket: what its file says, or what somebody was told.
struct ControlSocketAddress {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string word;
};
/// Usage error `run.not-elastic`: nothing runs there that can be asked.
Result<ControlSocketAddress> read_control_socket(const std::string& file);

/// The answer to a question, to which the word is added; waits as long at most. Runtime error
/// `run.control_socket` where nobody answers.
Result<Json> ask_control_socket(const ControlSocketAddress& address, Json question, double seconds);

}  // namespace motley::run
