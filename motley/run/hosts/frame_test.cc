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
  ASSERT_TRUE(write_frame(pipe->write.number(), {{"do", "keep"}}, bytes).has_value());
  FrameReader reader;
  EXPECT_TRUE(reader.read_some(pipe->read.number()));
  const auto frame = reader.next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->head["do"], "keep");
  EXPECT_EQ(frame->bytes, bytes);
  pipe->write.reset();
  EXPECT_FALSE(reader.read_some(pipe->read.number()));
}

}  // namespace
}  // namespace motley::run
