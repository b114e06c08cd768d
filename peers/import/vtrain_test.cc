#include "peers/import/vtrain.h"

#include <gtest/gtest.h>

namespace motley::peers {
namespace {

const std::string kNames =
    "\xEF\xBB\xBF# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence "
    "length,tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\r\n";

std::string runs_message(const std::string& row) {
  const auto runs = parse_vtrain_runs(kNames + row + "\r\n", "v.csv");
  return runs ? "no error" : runs.error().message;
}

std::string table_message(const std::string& text) {
  const auto curve = parse_vtrain_all_reduce(text, "ar.csv");
  return curve ? "no error" : curve.error().message;
}

TEST(Vtrain, ReadsRuns) {
  const auto runs = parse_vtrain_runs(kNames + "8,32,4,1024,16,24,512,2,2,2,219.75\r\n", "v.csv");
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 1u);
  const TransformerJob job = {.layers = 24,
                              .hidden = 1024,
                              .heads = 16,
                              .sequence = 512,
                              .vocabulary = 50257,
                              .tensor = 2,
                              .pipeline = 2,
                              .data = 2,
                              .micro_batch = 4,
                              .global_batch = 32};
  EXPECT_EQ((*runs)[0].job, job);
  EXPECT_DOUBLE_EQ((*runs)[0].measured.value, 0.21975);
}

TEST(Vtrain, RefusesRunsThatCannotBe) {
  EXPECT_EQ(runs_message("8,32,4,1024,16,24,1024,2,2,2,0"),
            "v.csv:2: column 'iteration time (ms)': found '0', wanted more than 0");
  EXPECT_EQ(runs_message("8,32,4,1024,16,24,1024,2,2,2,-3.5"),
            "v.csv:2: column 'iteration time (ms)': found '-3.5', wanted more than 0");
  EXPECT_EQ(runs_message("8,32,4,1024,16,24,1024,2,2,2"), "v.csv:2: found 10 fields, wanted 11");
  EXPECT_EQ(runs_message("8,32,4,wide,16,24,1024,2,2,2,9"),
            "v.csv:2: column 'hidden size': found 'wide', wanted an integer");
  EXPECT_EQ(runs_message("4,32,4,1024,16,24,1024,2,2,2,9"),
            "v.csv:2: 4 GPUs, but 2 tensor * 2 data * 2 pipeline ranks are 8");
  EXPECT_EQ(runs_message("8,30,4,1024,16,24,1024,2,2,2,9"),
            "v.csv:2: global batch 30 does not divide by replicas * micro-batch 8");
  EXPECT_EQ(parse_vtrain_runs("# GPUs,time\n8,9\n", "v.csv").error().message,
            "v.csv:1: no column 'iteration time (ms)', found: # GPUs, time");
}

TEST(Vtrain, TakesTheSecondOfTwoTimes) {
  const auto curve = parse_vtrain_all_reduce(
      "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n"
      "1048576,262144,float,44210,23.72,45100,23.25\n",
      "ar.csv");
  ASSERT_TRUE(curve) << curve.error().message;
  EXPECT_NEAR(curve->time(1048576).value, 45.1e-6, 1e-15);
  const auto single = parse_vtrain_all_reduce("size(B),time(ns)\n1048576,7000\n", "ar.csv");
  ASSERT_TRUE(single);
  EXPECT_NEAR(single->time(1048576).value, 7e-6, 1e-15);
}

TEST(Vtrain, RefusesTablesThatCannotBe) {
  EXPECT_EQ(table_message("size(B),time(ns)\n"), "ar.csv: a collective without measured sizes");
  EXPECT_EQ(table_message("size(B),time(ns)\n8,1\n8,2\n"),
            "ar.csv: a collective of 8 bytes comes twice");
  EXPECT_EQ(table_message("size(B),time(ns)\n8,0\n"),
            "ar.csv:2: column 'time(ns)': found '0', wanted more than 0");
  EXPECT_EQ(table_message("size,time(ns)\n8,1\n"),
            "ar.csv:1: no column 'size(B)', found: size, time(ns)");
  EXPECT_EQ(read_vtrain_all_reduce("no/such").error().message,
            "no/such/AR_GPU2_1M_1024M_LUT.csv: no such file");
}

}  // namespace
}  // namespace motley::peers
