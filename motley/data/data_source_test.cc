#include "motley/data/data_source.h"

#include <gtest/gtest.h>

#include "motley/base/json_fields.h"

namespace motley::data {
namespace {

DataSource parsed_path(const std::string& text) {
  DataSource source;
  EXPECT_TRUE(parse_data_path(text, source)) << text;
  return source;
}

TEST(ParseDataPath, SlicesAsPythonDoes) {
  EXPECT_EQ(parsed_path("a.npz"), (DataSource{.path = "a.npz"}));
  EXPECT_EQ(parsed_path("a.npz[:1500]"), (DataSource{.path = "a.npz", .end = 1500}));
  EXPECT_EQ(parsed_path("a.npz[1500:]"), (DataSource{.path = "a.npz", .begin = 1500}));
  EXPECT_EQ(parsed_path("a.npz[-20:-10]"), (DataSource{.path = "a.npz", .begin = -20, .end = -10}));
  EXPECT_EQ(parsed_path("odd[1]name.npz"), (DataSource{.path = "odd[1]name.npz"}));
}

TEST(ParseDataPath, SaysWhatIsWrong) {
  DataSource source;
  EXPECT_EQ(parse_data_path("a.npz[3]", source).error().message,
            "a.npz[3]: found [3], wanted samples as FILE[BEGIN:END], such as data.npz[:1500]");
  EXPECT_EQ(parse_data_path("a.npz[x:]", source).error().message,
            "a.npz[x:]: found [x:], wanted samples as FILE[BEGIN:END], such as data.npz[:1500]");
}

TEST(DataSource, JsonRoundTrip) {
  for (const DataSource& source : {DataSource{.path = "a.bin", .token_width = 4, .seq = 128},
                                   DataSource{.path = "a.npz", .begin = -3, .end = 7}}) {
    const auto parsed = fields_from_json<DataSource>(fields_to_json(source), "d");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, source);
  }
}

}  // namespace
}  // namespace motley::data
