#include "motley/run/hosts/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/testing/connect_here.h"

namespace motley::run {
namespace {

std::string listen_to_end(const Descriptor& socket) {
  std::string heard;
  char bytes[4096];
  for (ssize_t count; (count = ::recv(socket.number(), bytes, sizeof bytes, 0)) > 0;)
    heard.append(bytes, static_cast<std::size_t>(count));
  return heard;
}

class ControlSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-door-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    file_ = folder_ + "/door.json";
    control_socket_ = ControlSocket::open(0, file_).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Polls the control socket until there is a question, for at most five seconds.
  ControlSocket::Question wait_for_question() {
    for (int i = 0; i < 5000; ++i) {
      for (ControlSocket::Question& question : control_socket_->take()) return std::move(question);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "nobody asked";
    return {};
  }
  void expect_silence(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      EXPECT_TRUE(control_socket_->take().empty());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// Asks and returns the answer, which `answer` makes from the question.
  Result<Json> ask(const ControlSocketAddress& address, const Json& question,
                   const std::function<std::string(const ControlSocket::Question&)>& answer) {
    Result<Json> heard = runtime_error("none", "");
    std::atomic<bool> has_heard = false;
    std::thread caller([&] {
      heard = ask_control_socket(address, question, 5);
      has_heard = true;
    });
    while (!has_heard) {
      for (const ControlSocket::Question& each : control_socket_->take())
        control_socket_->answer(each.caller, answer(each));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    caller.join();
    return heard;
  }

  std::string folder_, file_;
  std::unique_ptr<ControlSocket> control_socket_;
};

TEST_F(ControlSocketTest, AQuestionIsAnswered) {
  const ControlSocketAddress address = read_control_socket(file_).value();
  EXPECT_EQ(address.port, control_socket_->port());
  EXPECT_EQ(address.host, "127.0.0.1");
  ControlSocket::Question heard;
  const auto answer = ask(address, {{"do", "state"}}, [&](const ControlSocket::Question& question) {
    heard = question;
    return std::string(R"({"step": 7})");
  });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(*answer, (Json{{"step", 7}}));
  EXPECT_TRUE(heard.knows_word);
  EXPECT_EQ(Json::parse(heard.text)["do"], "state");
}

// Parsing numbers changes errno, by which the control socket detects the end of input.
TEST_F(ControlSocketTest, AQuestionMayHaveNumbers) {
  const auto answer =
      ask(read_control_socket(file_).value(), {{"do", "state"}, {"since", 3}, {"of", 1.5}},
          [](const ControlSocket::Question&) { return std::string("{}"); });
  EXPECT_TRUE(answer) << answer.error().message;
}

TEST_F(ControlSocketTest, WhoDoesNotKnowTheWordIsHeardAsOneWhoDoesNot) {
  ControlSocketAddress address = read_control_socket(file_).value();
  for (const std::string& wrong : {std::string(), address.word + "x", address.word.substr(1)}) {
    bool knows = true;
    ControlSocketAddress other = address;
    other.word = wrong;
    ASSERT_TRUE(ask(other, {{"do", "leave"}}, [&](const ControlSocket::Question& question) {
      knows = question.knows_word;
      return std::string("{}");
    }));
    EXPECT_FALSE(knows) << wrong;
  }
  for (const char* text : {"no json\n", "[1]\n",
                           R"({"word": 3})"
                           "\n",
                           "\n", "{\xff}\n"}) {
    const Descriptor caller = connect_here(control_socket_->port());
    send_all(caller, text);
    EXPECT_FALSE(wait_for_question().knows_word) << text;
  }
}

TEST_F(ControlSocketTest, TheFileIsForItsOwnerAloneAndGoneAtTheEnd) {
  struct stat found {};
  ASSERT_EQ(::stat(file_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  control_socket_.reset();
  EXPECT_NE(::stat(file_.c_str(), &found), 0);
  const auto read = read_control_socket(file_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, "run.not-elastic");
  EXPECT_EQ(read.error().kind, ErrorKind::kUsage);
}

// An existing file of somebody else's may be readable by all.
TEST_F(ControlSocketTest, AFileThatWasThereIsClosedToOthersToo) {
  const std::string file = folder_ + "/old.json";
  ASSERT_TRUE(write_file_atomic(file, "old"));
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  const auto control_socket = ControlSocket::open(0, file).value();
  struct stat found {};
  ASSERT_EQ(::stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_EQ(read_control_socket(file)->port, control_socket->port());
}

TEST_F(ControlSocketTest, FilesOfOtherFormsAreNoDoors) {
  for (const char* text : {"", "x", "[]", "{}", R"({"port": "7", "word": "w"})",
                           R"({"port": 7, "word": 1})", R"({"port": 7})"}) {
    ASSERT_TRUE(write_file_atomic(folder_ + "/other", text));
    const auto read = read_control_socket(folder_ + "/other");
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, "run.not-elastic");
  }
}

TEST_F(ControlSocketTest, APortThatSomebodyHasIsSaid) {
  const std::string file = folder_ + "/second.json";
  const auto second = ControlSocket::open(control_socket_->port(), file);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, "run.port");
  EXPECT_EQ(
      second.error().message.rfind("port " + std::to_string(control_socket_->port()) + ": ", 0),
      0u);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(ControlSocketTest, APortIsFreeAgainAtOnce) {
  const int port = control_socket_->port();
  const Descriptor caller = connect_here(port);
  send_all(caller, "{}\n");
  control_socket_->answer(wait_for_question().caller, "{}");
  control_socket_.reset();
  EXPECT_TRUE(ControlSocket::open(port, file_));
}

TEST_F(ControlSocketTest, AFolderThatIsNotThereIsSaid) {
  const auto control_socket = ControlSocket::open(0, folder_ + "/none/door.json");
  ASSERT_FALSE(control_socket);
  EXPECT_EQ(control_socket.error().code, "run.directory");
}

TEST_F(ControlSocketTest, WhatIsTooLongIsDropped) {
  const Descriptor caller = connect_here(control_socket_->port());
  std::thread shouting([&] { send_all(caller, std::string(1 << 20, 'x')); });
  expect_silence(0.3);
  shouting.join();
  EXPECT_EQ(listen_to_end(caller), "");
  // The largest question allowed is answered.
  const Descriptor other = connect_here(control_socket_->port());
  const std::string text = R"({"pad": ")" + std::string(60 << 10, 'y') + R"("})";
  send_all(other, text + "\n");
  EXPECT_EQ(wait_for_question().text, text);
}

TEST_F(ControlSocketTest, WhoIsTooSlowIsDroppedAndHoldsNobodyUp) {
  const Descriptor slow = connect_here(control_socket_->port());
  send_all(slow, R"({"do": )");
  expect_silence(0.05);
  const Descriptor quick = connect_here(control_socket_->port());
  send_all(quick, "{}\n");
  const auto question = wait_for_question();
  EXPECT_EQ(question.text, "{}");
  control_socket_->answer(question.caller, "yes");
  EXPECT_EQ(listen_to_end(quick), "yes\n");
  expect_silence(5.2);  // seconds; a question has five
  EXPECT_EQ(listen_to_end(slow), "");
}

TEST_F(ControlSocketTest, AQuestionMayComeInPieces) {
  const Descriptor caller = connect_here(control_socket_->port());
  send_all(caller, R"({"do": )");
  expect_silence(0.02);
  send_all(caller, "\"state\"}\nand more");
  EXPECT_EQ(wait_for_question().text, R"({"do": "state"})");
}

// As nc does, and a shell.
TEST_F(ControlSocketTest, WhoSaysAllAndShutsItsEndIsAnswered) {
  const Descriptor caller = connect_here(control_socket_->port());
  send_all(caller, "{}\n");
  ::shutdown(caller.number(), SHUT_WR);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  control_socket_->answer(wait_for_question().caller, "yes");
  EXPECT_EQ(listen_to_end(caller), "yes\n");
}

TEST_F(ControlSocketTest, WhoGoesBeforeTheAnswerHarmsNobody) {
  {
    const Descriptor caller = connect_here(control_socket_->port());
    send_all(caller, "{}\n");
  }
  for (int i = 0; i < 20; ++i) {
    for (const ControlSocket::Question& question : control_socket_->take())
      control_socket_->answer(question.caller, "yes");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  control_socket_->answer(12345, "to nobody");
  const Descriptor caller = connect_here(control_socket_->port());
  send_all(caller, "{}\n");
  control_socket_->answer(wait_for_question().caller, "yes");
  EXPECT_EQ(listen_to_end(caller), "yes\n");
}

TEST_F(ControlSocketTest, WhoIsNotAnsweredSaysSo) {
  const ControlSocketAddress address = read_control_socket(file_).value();
  const auto late = ask_control_socket(address, {{"do", "state"}}, 0.2);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, "run.door");
  EXPECT_EQ(late.error().message,
            "127.0.0.1 port " + std::to_string(address.port) + ": no answer in time");
  control_socket_.reset();
  const auto closed = ask_control_socket(address, {{"do", "state"}}, 0.2);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, "run.door");
}

}  // namespace
}  // namespace motley::run
