#include "motley/base/json.h"

#include <gmock/gmock.h>

namespace motley {
namespace {

std::string json_message(std::string_view text) {
  return parse_json(text, "plan.json").error().message;
}

TEST(ParseJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json(R"({"b": 1, "a": [2.5, true, null]})", "x")->dump(),
            R"({"b":1,"a":[2.5,true,null]})");
}

TEST(ParseJson, SaysWhereTheTextIsWrong) {
  EXPECT_EQ(json_message("{\n  \"a\": 1,\n  \"b\": x\n}"),
            "plan.json:3:8: syntax error while parsing value - invalid literal; last read: "
            "'\"b\": x'");
  EXPECT_EQ(json_message(""),
            "plan.json:1:1: syntax error while parsing value - unexpected end of input; expected "
            "'[', '{', or a literal");
  EXPECT_EQ(parse_json("[", "x").error().code, "json.parse");
}

TEST(ParseJson, RefusesKeysThatAppearTwice) {
  EXPECT_EQ(json_message(R"({"a": {"k": 1}, "b": {"k": 2, "k": 3}})"),
            "plan.json: key 'k' appears twice");
  EXPECT_TRUE(parse_json(R"([{"k": 1}, {"k": 2}])", "x"));
}

TEST(ParseJson, BoundsDepth) {
  const std::string deepest = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(deepest, "x"));
  EXPECT_EQ(json_message("[" + deepest + "]"),
            "plan.json:1:65: nested too deeply, at most 64 levels");
  EXPECT_TRUE(parse_json("\"" + std::string(100, '[') + "\\\"[\"", "x"));
}

TEST(ParseJson, RefusesNumbersThatDoNotFit) {
  EXPECT_EQ(json_message("[1e999]"), "plan.json: number overflow parsing '1e999'");
}

class JsonObjectTest : public ::testing::Test {
 protected:
  Json json_ = *parse_json(
      R"({"name": "a", "samples": 24, "share": 0.5, "idle": false, "big": 18446744073709551615})",
      "x");
  JsonObject object_ = *JsonObject::make(json_, "plan.json: replica 0");
};

TEST_F(JsonObjectTest, ReadsMembersByType) {
  EXPECT_EQ(object_.string("name"), "a");
  EXPECT_EQ(object_.integer("samples"), 24);
  EXPECT_EQ(object_.number("samples"), 24.0);
  EXPECT_EQ(object_.number("share"), 0.5);
  EXPECT_EQ(object_.boolean("idle"), false);
  EXPECT_TRUE(object_.has("name"));
  EXPECT_FALSE(object_.has("names"));
}

TEST_F(JsonObjectTest, SaysWhatItFoundAndWanted) {
  EXPECT_EQ(object_.integer("name").error(),
            (Error{ErrorKind::kUsage, "json.type",
                   "plan.json: replica 0: key 'name': found a string, wanted an integer"}));
  EXPECT_EQ(object_.integer("share").error().message,
            "plan.json: replica 0: key 'share': found a number, wanted an integer");
  EXPECT_EQ(object_.string("idle").error().message,
            "plan.json: replica 0: key 'idle': found a boolean, wanted a string");
  EXPECT_EQ(object_.boolean("samples").error().message,
            "plan.json: replica 0: key 'samples': found an integer, wanted a boolean");
  EXPECT_EQ(object_.integer("big").error().message,
            "plan.json: replica 0: key 'big': found 18446744073709551615, wanted an integer below "
            "2^63");
  EXPECT_EQ(object_.number("sample").error(),
            (Error{ErrorKind::kUsage, "json.missing-key",
                   "plan.json: replica 0: key 'sample' is missing"}));
}

TEST_F(JsonObjectTest, RefusesWhatWasNeverRead) {
  for (const char* key : {"name", "share", "idle", "big"}) ASSERT_TRUE(object_.member(key));
  ASSERT_FALSE(object_.member("sample"));
  EXPECT_EQ(object_.refuse_unknown().error(),
            (Error{ErrorKind::kUsage, "json.unknown-key",
                   "plan.json: replica 0: unknown key 'samples', did you mean 'sample'?"}));
  ASSERT_TRUE(object_.member("samples"));
  EXPECT_TRUE(object_.refuse_unknown());
}

TEST(JsonObject, ReadsListsOfStrings) {
  const Json json = *parse_json(R"({"names": ["a", "b"], "none": [], "mixed": ["a", 1],
                                    "null": null, "object": {}})",
                                "x");
  JsonObject object = *JsonObject::make(json, "x");
  EXPECT_EQ(object.strings("names"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(object.strings("none"), std::vector<std::string>());
  EXPECT_EQ(object.strings("mixed").error().message,
            "x: key 'mixed': found an integer, wanted only strings in the list");
  EXPECT_EQ(object.strings("null").error().message,
            "x: key 'null': found null, wanted a list of strings");
  EXPECT_EQ(object.strings("object").error().message,
            "x: key 'object': found an object, wanted a list of strings");
}

TEST(JsonObject, WantsAnObject) {
  EXPECT_EQ(JsonObject::make(Json::array(), "plan.json").error().message,
            "plan.json: found a list, wanted an object");
}

}  // namespace
}  // namespace motley
