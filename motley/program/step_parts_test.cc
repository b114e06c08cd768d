#include "motley/program/step_parts.h"

#include <gmock/gmock.h>

#include "motley/program/program_text.h"

namespace motley::program {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// ^0 makes an exchange ready. The tail is an unpack, which waits for it, and a report.
DeviceProgram parse_device() {
  const auto program = parse_program(
      "motley.program/1\nmodel \"m\" plan \"p\" global_batch 0\ngroup 0: 0 1\n"
      "device \"a\" samples 0 first 0\nbuffer %0: state f32[2] \"w\"\n"
      "compute ^0: aten::f() \"f\"\n"
      "transfer ^1: motley::all_reduce(%0) group 0 wait ^0\n"
      "compute ^2: aten::g() \"g\"\n"
      "compute ^3: motley::unpack() wait ^1 \"u\"\n"
      "compute ^4: motley::report() \"r\"\n"
      "device \"b\" samples 0 first 0\nbuffer %0: state f32[2] \"w\"\n"
      "transfer ^0: motley::all_reduce(%0) group 0\n",
      "p");
  EXPECT_TRUE(program) << program.error().message;
  return program->devices[0];
}

TEST(StepParts, ArePutTogetherFromWhatWasSeen) {
  const StepShape shape = find_step_shape(parse_device());
  EXPECT_THAT(marks_parts(shape), ElementsAre(true, false, true, true, true));
  // f 3 s, g 4 s; the exchange 2 s; then unpack and report 0.5 s each.
  const std::vector<double> worked = {3, 0, 7, 7.5, 8}, exchanges = {0, 2, 0, 0, 0};
  const StepParts parts = find_step_parts(shape, worked, exchanges);
  EXPECT_THAT(parts.ready, ElementsAre(3));
  EXPECT_EQ(parts.end, 7);
  EXPECT_THAT(parts.update, ElementsAre(DoubleEq(1)));
  EXPECT_THAT(parts.exchange, ElementsAre(2));
  EXPECT_EQ(parts.blocking, 0);
}

}  // namespace
}  // namespace motley::program
