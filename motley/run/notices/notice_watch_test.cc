#include "motley/run/notices/notice_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>

#include "motley/testing/replay_server.h"

namespace motley::run {
namespace {

using Text = std::string;
using MaybeNotice = std::optional<Notice>;

constexpr auto kWatchPatience = std::chrono::seconds(30);  // for a busy machine

Notice notice_of(const Text& what, double left = 100) {
  return {"fake", what, Seconds(left), true, {}};
}

/// Plays a script, one line per poll; repeats the last line forever.
class Scripted : public NoticeSource {
 public:
  explicit Scripted(std::vector<Result<MaybeNotice>> script) : script_(std::move(script)) {}
  Text describe() const override { return "a script"; }
  Seconds every() const override { return Seconds(0.001); }
  Result<MaybeNotice> look(int) override {
    const auto seen = script_[std::min(looks.load(), script_.size() - 1)];
    ++looks;
    return seen;
  }
  std::atomic<std::size_t> looks = 0;

 private:
  std::vector<Result<MaybeNotice>> script_;
};

std::unique_ptr<NoticeWatch> watch_of(std::vector<Result<MaybeNotice>> script,
                                      const NoticeWatchOptions& options = {}) {
  return NoticeWatch::start(std::make_unique<Scripted>(std::move(script)), options).value();
}

template <typename T>
std::optional<T> wait_for(const std::function<std::optional<T>()>& take) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < kWatchPatience) {
    if (auto taken = take()) return taken;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}
Text next_notice(NoticeWatch& watch) {
  const auto notice = wait_for<Notice>([&] { return watch.take(); });
  return notice ? notice->what : "(none)";
}
Text next_note(NoticeWatch& watch) {
  return wait_for<Text>([&] { return watch.take_note(); }).value_or("(none)");
}

TEST(NoticeWatch, EachNoticeIsGivenOnce) {
  const auto watch = watch_of({MaybeNotice(), notice_of("a"), notice_of("a", 99), notice_of("b"),
                               notice_of("a", 98), notice_of("c", 5)});
  EXPECT_EQ(next_notice(*watch), "a");
  EXPECT_EQ(next_notice(*watch), "b");
  EXPECT_EQ(next_notice(*watch), "c");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(watch->take());
  EXPECT_FALSE(watch->take_note());
}

TEST(NoticeWatch, OneThatWasTakenBackMayComeAgain) {
  const auto watch = watch_of({notice_of("a"), MaybeNotice(), notice_of("a"), notice_of("b")});
  EXPECT_EQ(next_notice(*watch), "a");
  EXPECT_EQ(next_notice(*watch), "a");
  EXPECT_EQ(next_notice(*watch), "b");
}

TEST(NoticeWatch, TimePassesWhileNobodyTakesIt) {
  auto source = std::make_unique<Scripted>(
      std::vector<Result<MaybeNotice>>{notice_of("a"), notice_of("b", 0.001), MaybeNotice()});
  const Scripted& script = *source;
  const auto watch = NoticeWatch::start(std::move(source)).value();
  while (script.looks < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const auto first = watch->take(), second = watch->take();
  ASSERT_TRUE(first && second);
  EXPECT_LT(first->left, Seconds(99.95));
  EXPECT_GT(first->left, Seconds(50));
  EXPECT_EQ(second->left, Seconds(0));
}

TEST(NoticeWatch, AFarOneIsANoteUntilItIsNear) {
  const auto watch = watch_of({notice_of("a", 7200), notice_of("a", 7100), notice_of("a", 800)},
                              {.every = Seconds(0.001)});
  EXPECT_EQ(next_note(*watch), "fake: a, in 7200 s");
  EXPECT_EQ(next_notice(*watch), "a");
  EXPECT_FALSE(watch->take_note());
}

TEST(NoticeWatch, ASourceThatDoesNotAnswerIsSaidOnceAndAskedLessOften) {
  const Result<MaybeNotice> fault = runtime_error("run.http", "nobody there");
  const auto watch =
      watch_of({fault, fault, MaybeNotice(), fault, fault, fault, fault, MaybeNotice(),
                notice_of("a"), fault, notice_of("a"), notice_of("b")},
               {.rarely = Seconds(0.02)});
  EXPECT_EQ(next_note(*watch),
            "no notices from a script; asked every 20 ms from now on: nobody there");
  EXPECT_EQ(next_note(*watch), "a script answers again");
  EXPECT_EQ(next_notice(*watch), "a");
  EXPECT_EQ(next_notice(*watch), "b");  // a failed poll withdrew nothing
  EXPECT_FALSE(watch->take_note());
  // The first two failures were not three in a row; after three in a row polling slows down.
  const auto begin = std::chrono::steady_clock::now();
  const auto rare =
      watch_of({fault, fault, fault, fault, fault, notice_of("a")}, {.rarely = Seconds(0.1)});
  EXPECT_EQ(next_notice(*rare), "a");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
}

TEST(NoticeWatch, ItsEndWaitsForNoServer) {
  const ReplayServer server([](const Text&) { return Text(ReplayServer::kSilence); });
  auto source = make_notice_source("azure@" + server.place(), {.answer = Seconds(300)}).value();
  auto watch = NoticeWatch::start(std::move(source)).value();
  while (server.requests().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto begin = std::chrono::steady_clock::now();
  watch.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kWatchPatience);
}

TEST(NoticeWatch, ItsEndWaitsForNoConnection) {
  // A socket with a full queue accepts nobody, silently.
  const Descriptor full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  auto* name = reinterpret_cast<sockaddr*>(&own);
  ASSERT_EQ(::bind(full.number(), name, length), 0);
  ASSERT_EQ(::listen(full.number(), 0), 0);
  ASSERT_EQ(::getsockname(full.number(), name, &length), 0);
  std::vector<Descriptor> queued;
  for (int i = 0; i < 4; ++i) {
    queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(queued.back().number(), name, length);
  }
  auto source = make_notice_source("aws@127.0.0.1:" + std::to_string(ntohs(own.sin_port)),
                                   {.connect = Seconds(300)})
                    .value();
  auto watch = NoticeWatch::start(std::move(source)).value();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto begin = std::chrono::steady_clock::now();
  watch.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kWatchPatience);
}

TEST(NoticeWatch, ReplaysAServer) {
  const ReplayServer server([](const Text& request) {
    return ReplayServer::text_of(200, request.find("preempted") != Text::npos ? "TRUE" : "NONE");
  });
  const auto watch =
      NoticeWatch::start(make_notice_source("gcp@" + server.place()).value()).value();
  const auto notice = wait_for<Notice>([&] { return watch->take(); });
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->source, "gcp");
  EXPECT_LE(notice->left, Seconds(30));
}

TEST(NoticeWatch, ASignalIsHeardAtOnce) {
  const auto watch =
      NoticeWatch::start(make_notice_source("slurm").value(), {.every = Seconds(3600)}).value();
  EXPECT_EQ(watch->signals(), (std::vector{SIGTERM, SIGUSR1}));
  EXPECT_FALSE(watch->note_signal(SIGINT));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(watch->take());
  EXPECT_TRUE(watch->note_signal(SIGTERM));
  EXPECT_EQ(next_notice(*watch), "slurm by SIGTERM or SIGUSR1");
}

TEST(NoticeWatch, ItsThreadTakesNoSignals) {
  // Blocked only here: a thread of the watch that took the signal would end the process.
  const auto watch = watch_of({MaybeNotice()});
  sigset_t used, before;
  sigemptyset(&used);
  sigaddset(&used, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &used, &before);
  ::kill(::getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  int signal = 0;
  EXPECT_EQ(sigwait(&used, &signal), 0);
  EXPECT_EQ(signal, SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(NoticeWatch, AFileAsSomebodyWritesIt) {
  const Text path = ::testing::TempDir() + "motley-watch-" + std::to_string(::getpid());
  std::filesystem::remove(path);
  const auto watch =
      NoticeWatch::start(make_notice_source("file:" + path).value(), {.every = Seconds(0.01)})
          .value();
  std::ofstream(path) << "20 b:0";
  const auto notice = wait_for<Notice>([&] { return watch->take(); });
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->devices, std::vector<Text>{"b:0"});
  EXPECT_LE(notice->left, Seconds(20));
  EXPECT_GT(notice->left, Seconds(1));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace motley::run
