#include "motley/run/notices/http_answer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace motley::run {
namespace {

using Text = std::string;

std::optional<HttpAnswer> http_answer(std::string_view text, Incoming incoming = Incoming::kOver) {
  const auto answer = parse_http_answer(text, incoming);
  EXPECT_TRUE(answer.has_value()) << answer.error().message;
  return answer.value_or(std::nullopt);
}

Text http_fault(std::string_view text, Incoming incoming = Incoming::kOver) {
  const auto answer = parse_http_answer(text, incoming);
  EXPECT_FALSE(answer.has_value());
  if (answer) return "";
  EXPECT_EQ(answer.error().code, "run.http");
  return answer.error().message;
}

const Text kByLength =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length: 4\r\n\r\nTRUE";
const Text kInChunks =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nTR\r\n2;x=y\r\nUE\r\n0\r\n\r\n";

TEST(HttpAnswer, BodiesByLengthInChunksAndByTheEnd) {
  EXPECT_EQ(http_answer(kByLength), (HttpAnswer{200, "TRUE"}));
  EXPECT_EQ(http_answer(kInChunks), (HttpAnswer{200, "TRUE"}));
  EXPECT_EQ(http_answer("HTTP/1.0 200 OK\nServer: x\n\nTRUE"), (HttpAnswer{200, "TRUE"}));
  EXPECT_EQ(http_answer("HTTP/1.1 404 Not Found\r\n\r\n"), (HttpAnswer{404, ""}));
  EXPECT_EQ(http_answer("HTTP/1.1 204\r\n\r\n", Incoming::kMore), (HttpAnswer{204, ""}));
}

TEST(HttpAnswer, AnswersOnTheWayAreSkipped) {
  EXPECT_EQ(http_answer("HTTP/1.1 100 Continue\r\n\r\n" + kByLength), (HttpAnswer{200, "TRUE"}));
}

TEST(HttpAnswer, MoreIsWaitedForUntilAllIsThere) {
  for (const Text& text : {kByLength, kInChunks}) {
    // The last chunk's line, of length 0, completes the answer.
    const std::size_t all = text.find("\n0\r\n") == Text::npos ? text.size() : text.size() - 2;
    for (std::size_t size = 0; size < all; ++size) {
      EXPECT_EQ(http_answer(text.substr(0, size), Incoming::kMore), std::nullopt) << size;
      EXPECT_EQ(http_fault(text.substr(0, size)), "the answer ended too early") << size;
    }
    EXPECT_EQ(http_answer(text.substr(0, all), Incoming::kMore), (HttpAnswer{200, "TRUE"}));
  }
}

TEST(HttpAnswer, WithoutALengthItEndsWithTheConnection) {
  const Text text = "HTTP/1.1 200 OK\r\n\r\nTR";
  EXPECT_EQ(http_answer(text, Incoming::kMore), std::nullopt);
  EXPECT_EQ(http_answer(text, Incoming::kOver), (HttpAnswer{200, "TR"}));
}

TEST(HttpAnswer, WhatIsNoHttpIsRefused) {
  const Text no = "an answer that is no HTTP: ";
  EXPECT_EQ(http_fault("SSH-2.0-OpenSSH_9.2\r\n"), no + "it begins without a status");
  EXPECT_EQ(http_fault("HTTP/1.1 2x0 OK\r\n"), no + "it begins without a status");
  EXPECT_EQ(http_fault("HTTP/1.1 099 OK\r\n"), no + "it begins without a status");
  EXPECT_EQ(http_fault("HTTP/1.1 200 OK\r\nServer\r\n\r\n"), no + "a header without a colon");
  EXPECT_EQ(http_fault("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
            no + "two lengths");
  const Text head = "HTTP/1.1 200 OK\r\n", size = "a size of at most 1048576 bytes was wanted";
  for (const Text length : {"-1", "1x", "", "1048577", "99999999999999999999999"})
    EXPECT_EQ(http_fault(head + "Content-Length: " + length + "\r\n\r\n"), no + size) << length;
  const Text chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(http_fault(chunked + "zz\r\n"), no + size);
  EXPECT_EQ(http_fault(chunked + "1\r\nabc\r\n0\r\n"), no + "a chunk longer than it says");
  EXPECT_EQ(http_fault(Text((1 << 20) + 1, 'x'), Incoming::kMore),
            no + "longer than 1048576 bytes");
}

RC_GTEST_PROP(HttpAnswer, ReadsAnyBytesOrRefusesThem, (const Text& bytes)) {
  for (const Incoming incoming : {Incoming::kMore, Incoming::kOver}) {
    const Text begin = *rc::gen::element<Text>("", "HTTP/1.1 200 OK\r\n", kByLength, kInChunks);
    const Text text = begin.substr(0, *rc::gen::inRange<std::size_t>(0, begin.size() + 1)) + bytes;
    const auto answer = parse_http_answer(text, incoming);
    if (!answer) {
      RC_ASSERT(answer.error().code == "run.http");
      continue;
    }
    if (incoming == Incoming::kOver) RC_ASSERT(answer->has_value());
    if (*answer) RC_ASSERT((*answer)->body.size() <= text.size());
  }
}

}  // namespace
}  // namespace motley::run
