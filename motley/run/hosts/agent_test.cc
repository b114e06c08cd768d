#include "motley/run/hosts/agent.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "motley/base/file.h"
#include "motley/run/hosts/here.h"
#include "motley/run/hosts/host_link.h"
#include "motley/run/hosts/left_files.h"
#include "motley/run/hosts/remote_process_set.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

/// An agent on this machine, connected to its coordinator by two pipes that `cat` keeps open.
class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    std::string pattern = ::testing::TempDir() + "motley-agent-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    std::ofstream(dir_ + "/worker") << "#!/bin/sh\n" << kWorker;
    fs::permissions(dir_ + "/worker", fs::perms::owner_all);
    for (const char* name : {"/in", "/out"}) ASSERT_EQ(::mkfifo((dir_ + name).c_str(), 0600), 0);
    agent_ = ::fork();
    if (agent_ == 0) serve();
    link_ = HostLink::start("b", {"sh", "-c",
                                  "exec 3<&0; cat <&3 3<&- > " + dir_ +
                                      "/in & exec 3<&-; exec cat " + dir_ + "/out"})
                .value();
  }
  void TearDown() override {
    link_.reset();
    if (agent_ > 0) {
      ::kill(agent_, SIGKILL);
      wait_for_exit(agent_);
    }
    fs::remove_all(dir_);
  }

  [[noreturn]] void serve() {
    AgentOptions options;
    options.input = ::open((dir_ + "/in").c_str(), O_RDONLY);
    options.output = ::open((dir_ + "/out").c_str(), O_WRONLY);
    options.worker = dir_ + "/worker";
    options.cache = dir_ + "/cache";
    options.hello = {{"motley", "1"}};
    options.probe = [] { return Result<Json>(Json{{"cluster", "text"}}); };
    options.most_silence = kSilence;
    ::_exit(serve_agent(options) ? 0 : 1);
  }

  /// Collects events of a process set until its last process has ended.
  std::vector<Heard> hear(RemoteProcessSet& process_set, std::size_t processes) {
    std::vector<Heard> heard;
    std::size_t ended = 0;
    while (ended < processes) {
      std::vector<Heard> now;
      process_set.listen(now);
      for (const Heard& each : now) ended += each.what != Heard::What::kLine;
      heard.insert(heard.end(), now.begin(), now.end());
      ::usleep(1000);
    }
    return heard;
  }

  static constexpr double kSilence = 1;  // seconds
  static constexpr const char* kWorker = R"(case $1 in
speak) echo said $2; echo wept >&2; exit 3;;
touch) touch $2;;
sleep) echo slept; exec sleep 60;;
esac)";
  std::string dir_;
  pid_t agent_ = -1;
  std::unique_ptr<HostLink> link_;
};

TEST_F(AgentTest, SaysWhoItIsAndWhatItsHostIs) {
  EXPECT_EQ(link_->greet(10).value()["motley"], "1");
  EXPECT_TRUE(fs::exists(link_->scratch()));
  EXPECT_EQ(link_->ask({{"do", "probe"}}, "probe", 10)->head["host"]["cluster"], "text");
  EXPECT_EQ(link_->ask({{"do", "fly"}}, "probe", 10).error().code, "agent.request");
}

TEST_F(AgentTest, TellsItsTimeAndMeasuresItself) {
  ASSERT_TRUE(link_->greet(10).has_value());
  const double time = link_->ask({{"do", "clock"}}, "clock", 10)->head["time"];
  EXPECT_NEAR(time, static_cast<double>(::time(nullptr)), 5);
  const Json port =
      link_->ask({{"do", "listen"}, {"address", "127.0.0.1"}, {"word", "w"}}, "listening", 10)
          ->head["port"];
  // Two at the same time, answered in any order.
  std::set<int> answered;
  for (const int id : {0, 1})
    ASSERT_TRUE(link_->send({{"do", "wire"},
                             {"id", id},
                             {"what", "together"},
                             {"seconds", 0.2},
                             {"address", "127.0.0.1"},
                             {"port", port},
                             {"word", "w"}}));
  for (int i = 0; i < 2; ++i) {
    const auto answer = link_->wait_for("wire", 10);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_GT(answer->head["bandwidth"].get<double>(), 0);
    answered.insert(answer->head["id"].get<int>());
  }
  EXPECT_EQ(answered, (std::set<int>{0, 1}));
}

TEST_F(AgentTest, FilesGoAndComeBackAndAreKept) {
  ASSERT_TRUE(link_->greet(10).has_value());
  const std::string big(kMostFrameBytes + 5, 'x');
  ASSERT_TRUE(write_file_atomic(dir_ + "/big", big).has_value());
  ASSERT_TRUE(link_->share(dir_ + "/big", "run/in/big").has_value());
  ASSERT_TRUE(link_->put_text("small", "run/out/sub/small").has_value());
  ASSERT_TRUE(link_->link("run/out/latest", "sub").has_value());
  ASSERT_TRUE(link_->fetch("run/out", dir_ + "/got", 10).has_value());
  EXPECT_EQ(read_file(dir_ + "/got/sub/small").value(), "small");
  EXPECT_EQ(fs::read_symlink(dir_ + "/got/latest"), "sub");
  EXPECT_EQ(read_file(link_->scratch() + "/run/in/big").value(), big);
  // The second time nothing is sent: the host keeps the file.
  const auto kept = fs::directory_iterator(dir_ + "/cache/files")->path();
  const auto written = fs::last_write_time(kept);
  ASSERT_TRUE(link_->share(dir_ + "/big", "run/in/again").has_value());
  ASSERT_TRUE(link_->ask({{"do", "exists"}, {"path", dir_}}, "exists", 10).has_value());
  EXPECT_EQ(fs::last_write_time(kept), written);
}

// The file takes longer to send than the coordinator may be silent; heartbeats keep it alive.
TEST_F(AgentTest, ListensAndLivesWhileASlowReaderTakesAFile) {
  ASSERT_TRUE(link_->greet(10).has_value());
  ASSERT_TRUE(link_->send({{"do", "reset"}}).has_value());
  ASSERT_TRUE(link_->put_text(std::string(3 * kMostFrameBytes, 'x'), "run/big").has_value());
  ASSERT_TRUE(link_->send({{"do", "fetch"}, {"path", "run/big"}}).has_value());
  ::usleep(200'000);  // it is sending
  ASSERT_TRUE(link_
                  ->send({{"do", "start"},
                          {"id", link_->next_process()},
                          {"rank", 0},
                          {"arguments", {"touch", dir_ + "/there"}}})
                  .has_value());
  for (int i = 0; i < 20 * kSilence; ++i) {  // nothing is read for twice the silence
    link_->beat();
    ::usleep(100'000);
  }
  EXPECT_TRUE(fs::exists(dir_ + "/there"));
  EXPECT_TRUE(link_->wait_for("fetched", 10).has_value());
  ::usleep(200'000);
  EXPECT_TRUE(link_->ask({{"do", "exists"}, {"path", dir_}}, "exists", 10).has_value());
}

TEST_F(AgentTest, WhatIsKeptOutlivesItUntilTheCoordinatorSaysWhatIsWanted) {
  ASSERT_TRUE(link_->greet(10).has_value());
  const std::string kept = link_->kept_folder() + "/run/cut/rank-1/checkpoint";
  for (const char* step :
       {"step-00000002", "step-00000004", "step-00000006", "step-00000008.tmp"}) {
    fs::create_directories(kept + "/" + step);
    std::ofstream(kept + "/" + step + "/model.safetensors") << step;
  }
  ASSERT_TRUE(link_->send({{"do", "retain"}, {"kept", "run"}, {"steps", {2, 6}}}).has_value());
  const std::string path = "run/cut/rank-1/checkpoint/step-00000006/model.safetensors";
  ASSERT_TRUE(link_->fetch_kept(path, dir_ + "/got", 10).has_value());
  EXPECT_EQ(read_file(dir_ + "/got/model.safetensors").value(), "step-00000006");
  EXPECT_FALSE(fs::exists(kept + "/step-00000004"));
  EXPECT_TRUE(fs::exists(kept + "/step-00000002") && fs::exists(kept + "/step-00000008.tmp"));
  ASSERT_TRUE(link_->fetch_kept("run/none", dir_ + "/none", 10).has_value());
  EXPECT_FALSE(fs::exists(dir_ + "/none"));
}

TEST_F(AgentTest, AProcessSetSpeaksAndEnds) {
  ASSERT_TRUE(link_->greet(10).has_value());
  ASSERT_TRUE(link_->send({{"do", "reset"}}).has_value());
  RemoteProcessSet process_set(*link_, "");
  ASSERT_TRUE(process_set.start({7, {"speak", "x"}, dir_ + "/log"}).has_value());
  const std::vector<Heard> heard = hear(process_set, 1);
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].id, 7);
  EXPECT_EQ(heard[0].line, "said x");
  EXPECT_EQ(exit_code_of(heard[1].status), 3);
  EXPECT_EQ(read_file(dir_ + "/log").value(), "wept\n");
}

TEST_F(AgentTest, SignalsReachAProcessSetAndNotTheNextOne) {
  ASSERT_TRUE(link_->greet(10).has_value());
  ASSERT_TRUE(link_->send({{"do", "reset"}}).has_value());
  {
    RemoteProcessSet first(*link_, "");
    ASSERT_TRUE(first.start({0, {"sleep"}, ""}).has_value());
  }
  RemoteProcessSet second(*link_, "");
  ASSERT_TRUE(second.start({0, {"speak", "x"}, ""}).has_value());
  const std::vector<Heard> heard = hear(second, 1);
  EXPECT_EQ(exit_code_of(heard.back().status), 3);  // not the first one's, which was killed
}

TEST_F(AgentTest, AKilledAgentLosesItsProcessSet) {
  ASSERT_TRUE(link_->greet(10).has_value());
  ASSERT_TRUE(link_->send({{"do", "reset"}}).has_value());
  RemoteProcessSet process_set(*link_, "");
  ASSERT_TRUE(process_set.start({0, {"sleep"}, ""}).has_value());
  ::kill(agent_, SIGKILL);
  const std::vector<Heard> heard = hear(process_set, 1);
  EXPECT_EQ(heard.back().what, Heard::What::kLost);
  EXPECT_NE(heard.back().line.find("host b"), std::string::npos);
}

TEST_F(AgentTest, TheEndOfItsInputEndsItAndItsFolder) {
  ASSERT_TRUE(link_->greet(10).has_value());
  const std::string scratch = link_->scratch();
  link_.reset();
  wait_for_exit(std::exchange(agent_, -1));
  EXPECT_FALSE(fs::exists(scratch));
}

TEST(HostLinkTest, SaysWhatWasTriedAndWhatThatSaid) {
  auto link = HostLink::start("nowhere", {"sh", "-c", "echo no such host >&2; exit 255"}).value();
  const Error error = link->greet(10).error();
  EXPECT_EQ(error.code, "host.unreachable");
  for (const char* word : {"host nowhere", "no such host", "tried: sh -c"})
    EXPECT_NE(error.message.find(word), std::string::npos) << error.message;
}

TEST(HostLinkTest, AHostThatTakesNothingIsNamedAndHoldsUpNoBeat) {
  ::signal(SIGPIPE, SIG_IGN);
  auto link = HostLink::start("b", {"sleep", "60"}).value();
  link->set_most_silence(1);
  Result<void> sent;
  std::thread sending([&] { sent = link->put_text(std::string(1 << 20, 'x'), "run/big"); });
  for (int i = 0; i < 5; ++i) {
    ::usleep(100'000);
    const auto begin = std::chrono::steady_clock::now();
    link->beat();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
  }
  sending.join();
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().message, "host b: nothing could be sent for 1 s");
}

TEST_F(AgentTest, FoldersAreLeftWithItWhenAllOfThemHasCome) {
  ASSERT_TRUE(link_->greet(5));
  const auto write = [&](const std::string& path, std::size_t bytes, char of) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << std::string(bytes, of);
  };
  write(dir_ + "/step-1/model", 3'000'000, 'a');
  write(dir_ + "/step-1/empty", 0, 'a');
  write(dir_ + "/step-2/model", 7, 'b');
  const fs::path left = link_->scratch() + "/left/checkpoint";
  LeftFiles files;
  const auto go_on_until = [&](const fs::path& is_there) {
    for (int turn = 0; turn < 5000 && !fs::exists(is_there); ++turn) {
      files.go_on(*link_);
      link_->beat();
      const auto heard = link_->listen();
      ASSERT_TRUE(heard) << heard.error().message;
      ::usleep(1000);
    }
  };
  files.want("checkpoint", "step-1", dir_ + "/step-1");
  files.go_on(*link_);
  EXPECT_FALSE(fs::exists(left / "step-1"));
  go_on_until(left / "step-1");
  EXPECT_EQ(read_file(left / "step-1/model").value(), std::string(3'000'000, 'a'));
  EXPECT_EQ(fs::file_size(left / "step-1/empty"), 0);
  files.want("checkpoint", "step-2", dir_ + "/step-2");
  go_on_until(left / "step-2");
  EXPECT_EQ(read_file(left / "step-2/model").value(), "bbbbbbb");
  EXPECT_FALSE(fs::exists(left / "step-1"));
  files.want("checkpoint", "step-2", dir_ + "/step-2");  // it is there
  files.go_on(*link_);
  EXPECT_FALSE(link_->has_more());
}

TEST_F(AgentTest, ItOutlivesItsCoordinatorAndIsTheNextOnes) {
  ASSERT_TRUE(link_->greet(5));
  ASSERT_TRUE(link_->send({{"do", "reset"}}));
  RemoteProcessSet process_set(*link_, "");
  ASSERT_TRUE(process_set.start({7, {"sleep"}, "", true}));
  ASSERT_TRUE(link_->make_standby("b", "secret", 5));
  // c precedes b: this agent starts no coordinator.
  const std::string memory =
      R"({"view": ["a", "c", "b"], "lead": "a", "arguments": [], "name": "run"})";
  ASSERT_TRUE(link_->send({{"do", "remember"}, {"version", 3}}, memory));
  while (link_->remembered() < 3) ASSERT_TRUE(link_->listen());
  const int port = link_->standby_port();
  const auto ask = [&](const std::string& word) {
    auto next = HostLink::over("b", connect_to("127.0.0.1", port, 2).value());
    (void)next->send({{"do", "lead"}, {"word", word}});
    return next;
  };
  EXPECT_EQ(ask("secret")->greet(2).error().code, "host.led");  // its coordinator lives
  process_set.forget(7);
  link_.reset();
  EXPECT_FALSE(ask("guess")->greet(2));
  link_ = ask("secret");
  const auto hello = link_->greet(2);
  ASSERT_TRUE(hello) << hello.error().message;
  EXPECT_EQ(hello->value("memory", ""), memory);
  EXPECT_EQ(hello->at("processes"), Json({{1, 7}}));
  RemoteProcessSet adopted(*link_, "");
  adopted.adopt({7, {}, "", true}, 1);
  adopted.signal_one(7, SIGKILL);
  const std::vector<Heard> heard = hear(adopted, 1);
  EXPECT_EQ(heard.back().id, 7);
  EXPECT_EQ(heard.back().what, Heard::What::kExit);
  ASSERT_TRUE(link_->send({{"do", "outlive"}, {"word", ""}, {"host", ""}, {"patience", 0}}));
}

}  // namespace
}  // namespace motley::run
