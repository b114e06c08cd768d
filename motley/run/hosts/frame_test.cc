#include "motley/run/hosts/frame.h"

#include <gtest/gtest.h>

#include "motley/run/hosts/child_process.h"

namespace motley::run {
namespace {

TEST(FrameTest, ComesInWhateverPieces) {
  const std::string text =
      "Welcome to host "
      "b\n{\"is\":\"hello\"}\n{\"do\":\"write\",\"bytes\":5}\n{}\n\nx{\"is\":\"end\"}\n";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      reader.add(std::string_view(text).substr(at, piece));
      while (auto frame = reader.next()) frames.push_back(std::move(*frame));
    }
    ASSERT_EQ(frames.size(), 3U) << piece;
    EXPECT_EQ(frames[0].head["is"], "hello");
    EXPECT_EQ(frames[1].bytes, "{}\n\nx");
    EXPECT_EQ(frames[2].head["is"], "end");
    EXPECT_EQ(reader.chatter(), "Welcome to host b");
  }
}

TEST(FrameTest, GoesThroughAPipe) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.has_value());
  const std::string bytes("a\0b\n", 4);
  FrameWriter writer;
  writer.add({{"do", "keep"}}, bytes);
  ASSERT_TRUE(writer.write_some(pipe->write.number()).has_value());
  FrameReader reader;
  EXPECT_TRUE(reader.read_some(pipe->read.number()));
  const auto frame = reader.next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->head["do"], "keep");
  EXPECT_EQ(frame->bytes, bytes);
  pipe->write.reset();
  EXPECT_FALSE(reader.read_some(pipe->read.number()));
}

TEST(FrameTest, AFullPipeKeepsNobody) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.has_value());
  FrameWriter writer;
  writer.add({{"do", "keep"}}, std::string(1 << 20, 'x'));
  ASSERT_TRUE(writer.write_some(pipe->write.number()).has_value());
  EXPECT_GT(writer.waiting(), 0U);
  const auto late = writer.write_all(pipe->write.number(), 0.2);
  EXPECT_EQ(late.error().code, "run.timeout");
  EXPECT_EQ(late.error().message, "nothing could be sent for 0 s");
  FrameReader reader;
  std::optional<Frame> frame;
  while (!frame) {
    EXPECT_TRUE(reader.read_some(pipe->read.number()));
    EXPECT_TRUE(writer.write_some(pipe->write.number()).has_value());
    frame = reader.next();
  }
  EXPECT_EQ(frame->bytes.size(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace motley::run
