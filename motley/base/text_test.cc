#include "motley/base/text.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace motley {
namespace {

using ::testing::ElementsAre;

TEST(PrintFloat, AlwaysShowsThatItIsAFloat) {
  EXPECT_EQ(print_float(2), "2.0");
  EXPECT_EQ(print_float(-0.0), "-0.0");
  EXPECT_EQ(print_float(0.1), "0.1");
  EXPECT_EQ(print_float(1e-5), "1e-05");
  EXPECT_EQ(print_float(100000), "100000.0");
  EXPECT_EQ(print_float(1e16), "1e+16");
  EXPECT_EQ(print_float(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(print_float(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(print_float(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

RC_GTEST_PROP(PrintFloat, ReadsBackToTheSameBits, (std::uint64_t bits)) {
  const auto value = std::bit_cast<double>(bits);
  const auto back = find_float(print_float(value));
  RC_ASSERT(back.has_value());
  const bool both_nan = std::isnan(value) && std::isnan(*back);
  RC_ASSERT(both_nan || std::bit_cast<std::uint64_t>(*back) == bits);
}

TEST(FindInteger, TakesWholeStringsOnly) {
  EXPECT_EQ(find_integer("-12"), -12);
  EXPECT_EQ(find_integer("9223372036854775807"), INT64_MAX);
  for (const char* wrong : {"", "1 ", " 1", "1.0", "+1", "0x1", "9223372036854775808", "-"}) {
    EXPECT_EQ(find_integer(wrong), std::nullopt) << wrong;
  }
}

TEST(FindFloat, TakesWholeStringsOnly) {
  EXPECT_EQ(find_float("2.5e3"), 2500.0);
  for (const char* wrong : {"", "1e", "1e999", "infinity", "nan(1)", "0x1p3", "1,5", " 1.0"}) {
    EXPECT_EQ(find_float(wrong), std::nullopt) << wrong;
  }
}

TEST(Quote, EscapesWhatWouldEndTheText) { EXPECT_EQ(quote("a\"b\\c\nd"), R"("a\"b\\c\nd")"); }

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Trim, TakesBlanksOffBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(Join, PutsTheSeparatorBetween) {
  const std::vector<std::string> parts = {"a", "b", "c"};
  EXPECT_EQ(join(parts, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(IsUtf8, RefusesWhatIsNotShortestForm) {
  EXPECT_TRUE(is_utf8("plain"));
  EXPECT_TRUE(is_utf8("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_FALSE(is_utf8("\x80"));
  EXPECT_FALSE(is_utf8("\xC0\xAF"));          // '/' in two bytes
  EXPECT_FALSE(is_utf8("\xE2\x82"));          // cut short
  EXPECT_FALSE(is_utf8("\xED\xA0\x80"));      // a surrogate
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(is_utf8("\xFF"));
}

TEST(FindSuggestion, NamesTheNearestLikelyWord) {
  const std::vector<std::string> words = {"threads", "memory", "speed"};
  EXPECT_EQ(find_suggestion("thread", words), "threads");
  EXPECT_EQ(find_suggestion("memroy", words), "memory");
  EXPECT_EQ(find_suggestion("bandwidth", words), std::nullopt);
  EXPECT_EQ(suggestion_clause("sped", words), ", did you mean 'speed'?");
  EXPECT_EQ(suggestion_clause("colour", words), "");
}

TEST(FormatBytes, ShowsThreeDigits) {
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(format_bytes(Bytes(512 << 20)), "512 MiB");
  // 17.9 * 2^30 = 19220002406.4
  EXPECT_EQ(format_bytes(Bytes(19220002406)), "17.9 GiB");
  // One byte less than 1 MiB rounds up to it rather than to "1024 KiB".
  EXPECT_EQ(format_bytes(Bytes((1 << 20) - 1)), "1 MiB");
  EXPECT_EQ(format_bytes(Bytes(-2048)), "-2 KiB");
}

TEST(FormatSeconds, ChoosesTheUnit) {
  EXPECT_EQ(format_seconds(Seconds(0)), "0 s");
  EXPECT_EQ(format_seconds(Seconds(3.507)), "3.51 s");
  EXPECT_EQ(format_seconds(Seconds(0.0124)), "12.4 ms");
  EXPECT_EQ(format_seconds(Seconds(180e-6)), "180 us");
  EXPECT_EQ(format_seconds(Seconds(0.99999)), "1 s");
  EXPECT_EQ(format_seconds(Seconds(7200)), "7200 s");
}

TEST(FormatRate, SpeaksInBits) {
  EXPECT_EQ(format_rate(BytesPerSecond(1.175e9)), "9.4 Gbps");
  EXPECT_EQ(format_rate(BytesPerSecond(125e6)), "1 Gbps");
}

TEST(ParseBytes, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("512MiB"), Bytes(512LL << 20));
  EXPECT_EQ(parse_bytes("24 GiB"), Bytes(24LL << 30));
  EXPECT_EQ(parse_bytes("1.2GB"), Bytes(1200000000));
  EXPECT_EQ(parse_bytes("64kB"), Bytes(64000));
  EXPECT_EQ(parse_bytes("100B"), Bytes(100));
  EXPECT_EQ(parse_bytes("4096"), Bytes(4096));
  EXPECT_EQ(parse_bytes("1e3B"), Bytes(1000));
  for (const char* wrong : {"", "GiB", "-1B", "12 apples", "1e30B", "inf", "nanB", "1..2B"}) {
    EXPECT_FALSE(parse_bytes(wrong)) << wrong;
  }
  EXPECT_EQ(parse_bytes("12gb").error(),
            (Error{ErrorKind::kUsage, "text.bytes",
                   "found '12gb', wanted a size such as 512MiB, 24GiB, 1.2GB"}));
}

TEST(ParseSeconds, KnowsItsUnits) {
  EXPECT_EQ(parse_seconds("120s"), Seconds(120));
  EXPECT_DOUBLE_EQ(parse_seconds("100us")->value, 1e-4);
  EXPECT_DOUBLE_EQ(parse_seconds("3ms")->value, 3e-3);
  EXPECT_EQ(parse_seconds("2min"), Seconds(120));
  EXPECT_EQ(parse_seconds("soon").error().message,
            "found 'soon', wanted a time such as 120s, 3ms, 100us");
}

TEST(ParseRate, KnowsBitsAndBytes) {
  EXPECT_EQ(parse_rate("10Gbps"), BytesPerSecond(1.25e9));
  EXPECT_EQ(parse_rate("40GB/s"), BytesPerSecond(40e9));
  EXPECT_EQ(parse_rate("1MiB/s"), BytesPerSecond(1048576));
  EXPECT_EQ(parse_rate("10 Gb").error().message,
            "found '10 Gb', wanted a rate such as 10Gbps, 100Mbps, 40GB/s");
}

TEST(PrintRows, IdenticalNeighboursShareARow) {
  EXPECT_EQ(print_rows({{"a:0", "1"}, {"a:1", "1"}, {"a:2", "1"}, {"b:0", "2"}}),
            "  a:0        1\n  a:1        1\n  a:2        1\n  b:0        2\n");
  EXPECT_EQ(print_rows({{"a:0", "1"}, {"b:0", "2"}, {"b:1", "2"}, {"b:2", "2"}, {"b:3", "2"}}),
            "  a:0        1\n  b:0 to b:3 2\n");
  EXPECT_EQ(print_rows({{"a:0", "1"}, {"a:1", "1"}, {"a:2", "1"}, {"b:3", "1"}, {"c", "1"}}),
            "  a:0        1\n  a:1        1\n  a:2        1\n  b:3        1\n  c          1\n");
}

}  // namespace
}  // namespace motley
