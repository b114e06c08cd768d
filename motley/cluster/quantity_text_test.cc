#include "motley/cluster/quantity_text.h"

#include <gtest/gtest.h>

#include "motley/base/text.h"

namespace motley::cluster {
namespace {

TEST(QuantityText, PrintsBytesInTheLargestUnitThatDividesThem) {
  EXPECT_EQ(print_bytes(Bytes(0)), "0B");
  EXPECT_EQ(print_bytes(Bytes(1000)), "1000B");
  EXPECT_EQ(print_bytes(Bytes(3 * 1024)), "3KiB");
  EXPECT_EQ(print_bytes(Bytes(512 << 20)), "512MiB");
  EXPECT_EQ(print_bytes(Bytes(std::int64_t{24} << 30)), "24GiB");
}

TEST(QuantityText, PrintsRatesInBitsASecond) {
  EXPECT_EQ(print_rate(BytesPerSecond(1.25e8)), "1Gbps");  // 1.25e8 * 8 = 1e9
  EXPECT_EQ(print_rate(BytesPerSecond(3.125e8)), "2.5Gbps");
  EXPECT_EQ(print_rate(BytesPerSecond(1.25e7)), "100Mbps");
  EXPECT_EQ(print_rate(BytesPerSecond(1)), "0.008kbps");
  EXPECT_EQ(print_rate(BytesPerSecond(4e10)), "320Gbps");  // 40 GB/s
}

TEST(QuantityText, PrintsPlainNumbersWhereSixDigitsDoNotDo) {
  EXPECT_EQ(print_rate(BytesPerSecond(123456789.25)), "123456789.25");
  EXPECT_EQ(print_seconds(Seconds(1.23456789)), "1.23456789");
  // The short forms are for keys and people.
  EXPECT_EQ(short_rate(BytesPerSecond(123456789.25)), "987.654Mbps");
  EXPECT_EQ(short_seconds(Seconds(1.23456789)), "1.23457s");
}

TEST(QuantityText, PrintsTimes) {
  EXPECT_EQ(print_seconds(Seconds(0)), "0s");
  EXPECT_EQ(print_seconds(Seconds(120)), "120s");
  EXPECT_EQ(short_seconds(Seconds(0.003)), "3ms");
  EXPECT_EQ(short_seconds(Seconds(1e-4)), "100us");
  EXPECT_EQ(short_seconds(Seconds(5e-8)), "0.05us");
  // A latency has the same name in every spelling.
  EXPECT_EQ(short_seconds(parse_seconds("0.1ms").value()),
            short_seconds(parse_seconds("100us").value()));
}

}  // namespace
}  // namespace motley::cluster
