#include "motley/program/program_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/places.h"
#include "motley/testing/program_generator.h"

namespace motley::program {
namespace {

/// Returns the error for a header and `body`, whose first line is line 3.
std::string error_of(const std::string& body) {
  const auto program =
      parse_program("motley.program/1\nmodel \"m\" plan \"p\" global_batch 8\n" + body, "p.txt");
  return program ? "" : program.error().code + " " + program.error().message;
}

std::string error_of_instruction(const std::string& line) {
  return error_of("device \"a:0\" samples 8 first 0\nbuffer %0: constant f32[2] \"c\"\n" + line);
}

TEST(ProgramText, GoldenProgramReadsAndPrintsAsItWas) {
  const std::string path = testing::source_path("tests/golden/program/two_devices.txt");
  const std::string text = read_file(path).value();
  const auto program = parse_program(text, path);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(print_program(*program), text);
  EXPECT_EQ(program->devices[0].samples, 24);
  const Instruction& some = program->devices[0].instructions[3];
  EXPECT_EQ(some.full_name(), "aten::some.Tensor_out");
  EXPECT_TRUE(some.returns_list);
  EXPECT_EQ(std::get<std::string>(some.arguments[8].value), "a \"b\" \\ \n");
  EXPECT_EQ(program->devices[0].buffer(BufferId(6)).bytes(), Bytes(24 * 64 * 4));
  EXPECT_EQ(storage_of(program->devices[0], BufferId(10)), BufferId(9));
}

TEST(ProgramText, GoldenProgramOfUnevenParts) {
  const std::string path = testing::source_path("tests/golden/program/uneven.txt");
  const std::string text = read_file(path).value();
  const auto program = parse_program(text, path);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(print_program(*program), text);
}

RC_GTEST_PROP(ProgramText, ParsePrintIsIdentity, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto size = *rc::gen::inRange<std::size_t>(2, 60);
  const Program program = testing::ProgramGenerator(seed).draw(size);
  const std::string text = print_program(program);
  const auto parsed = parse_program(text, "p");
  if (!parsed) RC_FAIL(parsed.error().message);
  RC_ASSERT(*parsed == program);
  RC_ASSERT(print_program(*parsed) == text);
}

RC_GTEST_PROP(ProgramText, OwnProgramsAreSoundByThemselves, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const Program program =
      testing::ProgramGenerator(seed).draw(*rc::gen::inRange<std::size_t>(2, 60));
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const Program own = own_program(program, Rank(static_cast<std::int32_t>(rank)));
    const auto parsed = parse_program(print_program(own), "p");
    if (!parsed) RC_FAIL(parsed.error().message);
    RC_ASSERT(*parsed == own);
    RC_ASSERT(own.devices[rank] == program.devices[rank]);
    RC_ASSERT(own.devices.size() == program.devices.size());
  }
}

TEST(ProgramText, MicroBatchesAreStretchesOfTheGlobalBatch) {
  const std::string text =
      "motley.program/1\nmodel \"m\" plan \"p\" global_batch 8 micro_batches 2\n"
      "device \"a:0\" samples 6 first 0\ndevice \"b:0\" samples 2 first 3\n";
  const auto program = parse_program(text, "p.txt");
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(print_program(*program), text);
  EXPECT_EQ(program->samples_of(program->devices[0]),
            (std::vector<std::int64_t>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(program->samples_of(program->devices[1]), (std::vector<std::int64_t>{3, 7}));
}

TEST(ProgramText, SkipsCommentsAndEmptyLines) {
  EXPECT_EQ(error_of("# a comment\n\ndevice \"a:0\" samples 8 first 0\n  # another\n"), "");
}

TEST(ProgramText, RefusesAnotherVersionOrNothing) {
  EXPECT_EQ(parse_program("motley.program/2\n", "p.txt").error().message,
            "p.txt:1: found 'motley.program/2', wanted 'motley.program/1'");
  EXPECT_EQ(parse_program("", "p.txt").error().message,
            "p.txt:1: found '', wanted 'motley.program/1'");
  EXPECT_EQ(parse_program("motley.program/1\n", "p.txt").error().message,
            "p.txt:1: found the end, wanted 'model'");
  EXPECT_EQ(parse_program("motley.program/1\nmodel m\n", "p.txt").error().message,
            "p.txt:2: found 'm', wanted a text in quotes");
}

TEST(ProgramText, RefusesBadItems) {
  EXPECT_EQ(error_of("buffer %0: input f32[2]\n"),
            "program.parse p.txt:3: found 'buffer %0: input f32[2]', wanted 'group' or 'device'");
  EXPECT_EQ(error_of("group 1: 0\n"),
            "program.parse p.txt:3: found ': 0', wanted group 0 before this, ids being dense");
  EXPECT_EQ(
      error_of_instruction("buffer %2: input f32[2]"),
      "program.parse p.txt:5: found ': input f32[2]', wanted %1 before this, ids being dense");
  EXPECT_EQ(error_of_instruction("buffer %1: inputs f32[2]"),
            "program.parse p.txt:5: found 'f32[2]', wanted one of parameter state model_buffer "
            "constant mirror input temporary carried in place of 'inputs'");
  EXPECT_EQ(error_of_instruction("buffer %1: input f31[2]"),
            "program.parse p.txt:5: found '[2]', wanted a dtype such as f32 in place of 'f31'");
  EXPECT_EQ(error_of_instruction("buffer %1: input f32[2; 3]"),
            "program.parse p.txt:5: found '; 3]', wanted ',' or ']'");
  EXPECT_EQ(error_of_instruction("jump ^0: a::b()"),
            "program.parse p.txt:5: found 'jump ^0: a::b()', wanted 'buffer', 'compute', "
            "'transfer', 'peer' or 'device'");
}

TEST(ProgramText, RefusesBadInstructions) {
  EXPECT_EQ(error_of_instruction("compute ^1: a::b()"),
            "program.parse p.txt:5: found ': a::b()', wanted ^0 before this, ids being dense");
  EXPECT_EQ(error_of_instruction("compute ^0: mm()"),
            "program.parse p.txt:5: found '()', wanted an operator such as aten::mm");
  EXPECT_EQ(error_of_instruction("compute ^0: %1 aten::mm()"),
            "program.parse p.txt:5: found 'aten::mm()', wanted '='");
  EXPECT_EQ(error_of_instruction("compute ^0: aten::mm(%0"),
            "program.parse p.txt:5: found the end of the line, wanted ',' or ')'");
  EXPECT_EQ(error_of_instruction("compute ^0: aten::mm(what)"),
            "program.parse p.txt:5: found ')', wanted an argument in place of 'what'");
  EXPECT_EQ(error_of_instruction("compute ^0: aten::mm(99999999999999999999)"),
            "program.parse p.txt:5: found ')', wanted a number in place of "
            "'99999999999999999999'");
  EXPECT_EQ(error_of_instruction("compute ^0: aten::mm(%4294967296)"),
            "program.parse p.txt:5: found ')', wanted an id up to 2147483647");
  EXPECT_EQ(error_of_instruction("compute ^0: aten::mm(%0) origin 1 wait ^0"),
            "program.parse p.txt:5: found 'wait ^0', wanted group, list, carried, wait, origin, a "
            "label or free, in this order, or the end");
}

TEST(ProgramText, RefusesListsThatAreTooDeep) {
  const auto nested = [](std::size_t depth) {
    return "compute ^0: aten::f(" + std::string(depth, '[') + std::string(depth, ']') + ")";
  };
  EXPECT_EQ(error_of_instruction(nested(16)), "");
  EXPECT_EQ(error_of_instruction(nested(17)),
            "program.parse p.txt:5: found ']]]]]]]]]]]]]]]]])', wanted lists 16 deep at most");
}

TEST(ProgramText, ArgumentsCompareWithNaNEqualToItself) {
  const double nan = std::nan("");
  EXPECT_EQ(Argument{nan}, Argument{nan});
  EXPECT_EQ(Argument{NumberArgument{nan}}, Argument{NumberArgument{nan}});
  EXPECT_EQ(Argument{ArgumentList{{nan}}}, Argument{ArgumentList{{nan}}});
  EXPECT_FALSE(Argument{1.0} == Argument{std::int64_t{1}});
}

}  // namespace
}  // namespace motley::program
