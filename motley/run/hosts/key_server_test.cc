#include "motley/run/hosts/key_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "motley/testing/connect_here.h"

namespace motley::run {
namespace {

/// A client that sends raw bytes; waits at most five seconds for an answer.
class KeyClient {
 public:
  explicit KeyClient(int port) : socket_(connect_here(port)) {}

  void send(std::string_view bytes) { send_all(socket_, bytes); }
  /// None: the connection was closed, or nothing came.
  std::optional<std::string> receive() {
    const auto head = take(4);
    if (!head) return std::nullopt;
    std::uint32_t length = 0;
    std::memcpy(&length, head->data(), 4);
    return take(length);
  }
  std::optional<std::string> ask(const std::string& request) {
    send(pack_fields({request}));
    return receive();
  }
  bool is_let_in(const std::string& word) { return ask(word) == ""; }
  void close() { socket_.reset(); }

 private:
  std::optional<std::string> take(std::size_t count) {
    std::string bytes(count, '\0');
    for (std::size_t have = 0; have < count;) {
      const ssize_t got = ::recv(socket_.number(), bytes.data() + have, count - have, 0);
      if (got <= 0) return std::nullopt;
      have += static_cast<std::size_t>(got);
    }
    return bytes;
  }
  Descriptor socket_;
};

std::string key_request(char operation, const std::vector<std::string>& fields) {
  return operation + pack_fields(fields);
}

class KeyServerTest : public ::testing::Test {
 protected:
  KeyServerTest() : server_(KeyServer::start().value()) {}
  std::unique_ptr<KeyClient> enter() {
    auto client = std::make_unique<KeyClient>(server_->port());
    EXPECT_TRUE(client->is_let_in(server_->word()));
    return client;
  }
  std::unique_ptr<KeyServer> server_;
};

TEST(KeyFields, SurviveTheirBytes) {
  const std::vector<std::string> lists[] = {
      {}, {""}, {"a"}, {"", "", "b"}, {std::string("\0\x01\xff", 3), std::string(70000, 'x')}};
  for (const std::vector<std::string>& each : lists)
    EXPECT_EQ(unpack_fields(pack_fields(each)), each);
}

// A length, little-endian in four bytes, and the field.
TEST(KeyFields, HaveTheirLengthBeforeThem) {
  EXPECT_EQ(pack_fields({"ab", ""}), std::string("\2\0\0\0ab\0\0\0\0", 10));
}

TEST(KeyFields, WhatIsCutOffIsNotThere) {
  const std::string whole = pack_fields({"first", "second"});
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(unpack_fields(whole.substr(0, length)).size(), length < 9 ? 0u : 1u) << length;
  EXPECT_TRUE(unpack_fields(std::string("\xff\xff\xff\xff", 4)).empty());
}

TEST_F(KeyServerTest, DoesWhatIsAsked) {
  auto client = enter();
  const auto ask = [&](char operation, const std::vector<std::string>& fields) {
    return client->ask(key_request(operation, fields)).value_or("(closed)");
  };
  EXPECT_EQ(ask('g', {"k"}), "0");
  EXPECT_EQ(ask('s', {"k", "value"}), "");
  EXPECT_EQ(ask('g', {"k"}), "1value");
  EXPECT_EQ(ask('s', {"k", ""}), "");
  EXPECT_EQ(ask('g', {"k"}), "1");
  EXPECT_EQ(ask('a', {"n", "3"}), "3");
  EXPECT_EQ(ask('a', {"n", "-5"}), "-2");
  EXPECT_EQ(ask('g', {"n"}), "1-2");
  EXPECT_EQ(ask('c', {"k", "n"}), "1");
  EXPECT_EQ(ask('c', {"k", "m"}), "0");
  EXPECT_EQ(ask('d', {"k"}), "1");
  EXPECT_EQ(ask('d', {"k"}), "0");
  EXPECT_EQ(ask('g', {"k"}), "0");
}

// As torch's stores: an empty expectation sets a missing key. Otherwise returns the current value
// or, if the key is missing, the expected one.
TEST_F(KeyServerTest, ComparesBeforeItSets) {
  auto client = enter();
  const auto ask = [&](const std::vector<std::string>& fields) {
    return client->ask(key_request('x', fields)).value_or("(closed)");
  };
  EXPECT_EQ(ask({"k", "old", "new"}), "old");
  EXPECT_EQ(client->ask(key_request('g', {"k"})), "0");
  EXPECT_EQ(ask({"k", "", "first"}), "first");
  EXPECT_EQ(ask({"k", "", "second"}), "first");
  EXPECT_EQ(ask({"k", "first", "second"}), "second");
  EXPECT_EQ(client->ask(key_request('g', {"k"})), "1second");
}

TEST_F(KeyServerTest, WhatMakesNoSenseIsAnsweredToo) {
  auto client = enter();
  EXPECT_EQ(client->ask(""), "");
  EXPECT_EQ(client->ask("?"), "");
  EXPECT_EQ(client->ask("g"), "0");
  EXPECT_EQ(client->ask("s\xff\xff\xff\xff"), "");
  EXPECT_EQ(client->ask(key_request('s', {"n", "many"})), "");
  EXPECT_EQ(client->ask(key_request('a', {"n", "2"})), "2") << "no number counts as 0";
  // 2^63 - 1 plus 1 wraps in two's complement.
  EXPECT_EQ(client->ask(key_request('s', {"n", "9223372036854775807"})), "");
  EXPECT_EQ(client->ask(key_request('a', {"n", "1"})), "-9223372036854775808");
  EXPECT_EQ(client->ask(key_request('g', {"k"})), "0");
}

TEST_F(KeyServerTest, AWrongWordIsRefused) {
  auto good = enter();
  const std::string word = server_->word();
  for (const std::string& wrong : {std::string(), word.substr(1), word + "x",
                                   std::string(word.size(), '0'), std::string(1 << 20, 'x')}) {
    KeyClient bad(server_->port());
    bad.send(pack_fields({wrong, key_request('s', {"k", "stolen"})}));
    EXPECT_EQ(bad.receive(), std::nullopt) << wrong.size();
  }
  // A length that is too large for the word is rejected without waiting for the rest.
  KeyClient bad(server_->port());
  bad.send(std::string("\xff\xff\xff\x7f", 4));
  EXPECT_EQ(bad.receive(), std::nullopt);
  EXPECT_EQ(good->ask(key_request('g', {"k"})), "0");
}

TEST_F(KeyServerTest, RequestsMayComeInPieces) {
  KeyClient client(server_->port());
  for (const char byte : pack_fields({server_->word(), key_request('s', {"k", "value"})})) {
    client.send({&byte, 1});
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(client.receive(), "");
  EXPECT_EQ(client.receive(), "");
  EXPECT_EQ(client.ask(key_request('g', {"k"})), "1value");
}

TEST_F(KeyServerTest, SeveralRequestsMayComeAtOnce) {
  KeyClient client(server_->port());
  client.send(pack_fields({server_->word(), key_request('a', {"n", "1"}),
                           key_request('a', {"n", "1"}), key_request('g', {"n"})}));
  for (const char* expected : {"", "1", "2", "12"}) EXPECT_EQ(client.receive(), expected);
}

// Larger than socket buffers, in both directions.
TEST_F(KeyServerTest, LargeValuesPass) {
  auto client = enter();
  const std::string value(16 << 20, 'v');
  EXPECT_EQ(client->ask(key_request('s', {"k", value})), "");
  // Others are served while this answer is not read.
  client->send(pack_fields({key_request('g', {"k"})}));
  auto other = enter();
  EXPECT_EQ(other->ask(key_request('c', {"k"})), "1");
  EXPECT_EQ(client->receive(), "1" + value);
}

TEST_F(KeyServerTest, WhoDiesInTheMiddleOfARequestHarmsNobody) {
  auto client = enter();
  for (int i = 0; i < 20; ++i) {
    auto dying = enter();
    const std::string request = pack_fields({key_request('s', {"k", "half"})});
    dying->send(request.substr(0, static_cast<std::size_t>(i) % request.size()));
    dying->close();
    KeyClient unknown(server_->port());
    unknown.send(pack_fields({server_->word()}).substr(0, 6));
    unknown.close();
    // Gone before its answer is written.
    auto leaving = enter();
    leaving->send(pack_fields(
        {key_request('s', {"large", std::string(1 << 16, 'x')}), key_request('g', {"large"})}));
    leaving->close();
    EXPECT_EQ(client->ask(key_request('a', {"n", "1"})), std::to_string(i + 1));
  }
  EXPECT_EQ(client->ask(key_request('g', {"k"})), "0") << "half a request is none";
}

TEST_F(KeyServerTest, TwoHundredAreServedAtOnce) {
  std::vector<std::unique_ptr<KeyClient>> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(enter());
  for (int round = 0; round < 3; ++round) {
    for (auto& client : clients) client->send(pack_fields({key_request('a', {"n", "1"})}));
    std::set<std::string> sums;
    for (auto& client : clients) sums.insert(client->receive().value_or("(closed)"));
    EXPECT_EQ(sums.size(), 200u) << "each counted once";
  }
  EXPECT_EQ(clients[7]->ask(key_request('g', {"n"})), "1600");
}

TEST_F(KeyServerTest, ManyThreadsCountTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([this] {
      auto client = enter();
      for (int k = 0; k < 100; ++k) EXPECT_TRUE(client->ask(key_request('a', {"n", "1"})));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(enter()->ask(key_request('g', {"n"})), "1800");
}

TEST(KeyServers, HaveWordsOfTheirOwn) {
  const auto first = KeyServer::start().value(), second = KeyServer::start().value();
  EXPECT_NE(first->word(), second->word());
  EXPECT_NE(first->port(), second->port());
  KeyClient client(first->port());
  EXPECT_FALSE(client.is_let_in(second->word()));
}

TEST(KeyServers, EndWithClientsStillThere) {
  auto server = KeyServer::start().value();
  KeyClient client(server->port());
  EXPECT_TRUE(client.is_let_in(server->word()));
  server.reset();
  EXPECT_EQ(client.ask(key_request('g', {"k"})), std::nullopt);
}

}  // namespace
}  // namespace motley::run
