#include "motley/run/notices/http.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <thread>

#include "motley/base/descriptor.h"
#include "motley/testing/replay_server.h"

namespace motley::run {
namespace {

using Text = std::string;

HttpAsk ask_of(const ReplayServer& server) {
  return {.host = "127.0.0.1", .port = server.port(), .path = "/a", .headers = {}};
}

Error ask_fault(const HttpAsk& ask, const HttpPatience& patience) {
  const auto answer = ask_http(ask, patience);
  EXPECT_FALSE(answer.has_value());
  return answer ? Error{} : answer.error();
}

TEST(Http, AsksAndIsAnswered) {
  const ReplayServer server([](const Text&) { return ReplayServer::text_of(200, "TRUE"); });
  HttpAsk ask = ask_of(server);
  ask.headers = {{"Metadata-Flavor", "Google"}};
  EXPECT_EQ(ask_http(ask, {}).value(), (HttpAnswer{200, "TRUE"}));
  ask.method = "PUT";
  ask.host = "localhost";
  EXPECT_EQ(ask_http(ask, {.connect = Seconds(60)}).value(), (HttpAnswer{200, "TRUE"}));
  const Text host = std::to_string(server.port()) + "\r\nConnection: close\r\n";
  EXPECT_EQ(server.requests(),
            (std::vector<Text>{
                "GET /a HTTP/1.1\r\nHost: 127.0.0.1:" + host + "Metadata-Flavor: Google\r\n\r\n",
                "PUT /a HTTP/1.1\r\nHost: localhost:" + host +
                    "Content-Length: 0\r\nMetadata-Flavor: Google\r\n\r\n"}));
}

TEST(Http, ChunksPiecesAndOtherAnswersThan200) {
  const ReplayServer chunks([](const Text&) {
    return Text("HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno!\r\n0\r\n\r\n");
  });
  EXPECT_EQ(ask_http(ask_of(chunks), {}).value(), (HttpAnswer{404, "no!"}));
  const Text large(500000, 'x');  // in many pieces
  const ReplayServer server([&](const Text&) { return ReplayServer::text_of(200, large); });
  EXPECT_EQ(ask_http(ask_of(server), {}).value().body, large);
}

TEST(Http, WhoClosesTooEarlyIsNamed) {
  const ReplayServer server(
      [](const Text&) { return Text("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nTRUE"); });
  const Error fault = ask_fault(ask_of(server), {});
  EXPECT_EQ(fault.code, "run.http");
  EXPECT_EQ(fault.message,
            "127.0.0.1 port " + std::to_string(server.port()) + ": the answer ended too early");
  const ReplayServer silent([](const Text&) { return Text(); });
  EXPECT_EQ(ask_fault(ask_of(silent), {}).message,
            "127.0.0.1 port " + std::to_string(silent.port()) + ": the answer ended too early");
}

TEST(Http, WhoNeverAnswersIsWaitedForSoLong) {
  const ReplayServer server([](const Text&) { return Text(ReplayServer::kSilence); });
  const auto begin = std::chrono::steady_clock::now();
  const Error fault = ask_fault(ask_of(server), {.answer = Seconds(0.2)});
  EXPECT_EQ(fault.message,
            "127.0.0.1 port " + std::to_string(server.port()) + ": no answer within 0.2 s");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Http, NobodyThere) {
  EXPECT_EQ(ask_fault({.host = "127.0.0.1", .port = 1, .headers = {}}, {}).message,
            "127.0.0.1 port 1: Connection refused");
  // Names under .invalid do not exist (RFC 2606); a missing resolver takes longer.
  const Text unknown = ask_fault({.host = "nobody.invalid", .headers = {}}, {}).message;
  EXPECT_TRUE(unknown.starts_with("nobody.invalid port 80: ")) << unknown;
}

TEST(Http, WhoIsWokenWaitsNoLonger) {
  const ReplayServer server([](const Text&) { return Text(ReplayServer::kSilence); });
  const Descriptor wake(::eventfd(0, EFD_CLOEXEC));
  std::thread waking([&] {
    while (server.requests().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::eventfd_write(wake.number(), 1);
  });
  const auto begin = std::chrono::steady_clock::now();
  const Error fault = ask_fault(ask_of(server), {.answer = Seconds(60), .wake = wake.number()});
  waking.join();
  EXPECT_EQ(fault.code, "run.woken");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace motley::run
