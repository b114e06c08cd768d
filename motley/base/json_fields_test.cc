#include "motley/base/json_fields.h"

#include <gtest/gtest.h>

#include <array>

namespace motley {
namespace {

enum class Colour { kRed, kBlue };
constexpr std::array<std::string_view, 2> kColours = {"red", "blue"};

struct Part {
  std::string name;
  int size = 1;
  bool operator==(const Part&) const = default;
  static void fields(auto& it, auto& field) { field("name", it.name)("size", it.size); }
  Result<void> check(const std::string& where) const {
    if (size > 0) return {};
    return usage_error("part.size", where + ": wanted a size above 0");
  }
};
struct Turn {
  bool left = false;
  bool operator==(const Turn&) const = default;
  static constexpr const char* kKind[] = {"do", "turn"};
  static void fields(auto& it, auto& field) { field("left", it.left); }
};
struct Stop {
  bool operator==(const Stop&) const = default;
  static constexpr const char* kKind[] = {"do", "stop"};
  static void fields(auto&, auto&) {}
};
using Move = std::variant<Turn, Stop>;

struct Whole {
  std::uint64_t seed = ~std::uint64_t{0};
  Colour colour = Colour::kBlue;
  std::optional<Seconds> limit;
  std::optional<Part> spare;
  std::vector<Part> parts;
  std::vector<double> weights;
  std::map<std::string, std::string> hashes;
  Move move;
  bool operator==(const Whole&) const = default;
  static void fields(auto& it, auto& field) {
    field("seed", it.seed).word("colour", it.colour, kColours)("limit_s", it.limit);
    field.maybe("spare", it.spare)("parts", it.parts)("move", it.move);
    field.when(!it.weights.empty(), "weights", it.weights)("hashes", it.hashes);
  }
};

TEST(JsonFields, ReadWhatTheyWrote) {
  const Whole full{.seed = 7,
                   .limit = Seconds(0.5),
                   .spare = Part{"c", 3},
                   .parts = {{"a", 1}, {"b", 2}},
                   .weights = {0.5, 2},
                   .hashes = {{"f", "x"}},
                   .move = Stop{}};
  for (const Whole& whole : {Whole(), full})
    EXPECT_EQ(fields_from_json<Whole>(fields_to_json(whole), "w").value(), whole);
  EXPECT_EQ(fields_to_json(full).dump(),
            R"({"seed":7,"colour":"blue","limit_s":0.5,"spare":{"name":"c","size":3},)"
            R"("parts":[{"name":"a","size":1},{"name":"b","size":2}],"move":{"do":"stop"},)"
            R"("weights":[0.5,2.0],"hashes":{"f":"x"}})");
}

/// Returns the error for a field with this text in place of its own.
std::string fault(const char* key, const char* text) {
  Json json = fields_to_json(Whole());
  json[key] = Json::parse(text);
  const auto read = fields_from_json<Whole>(json, "w");
  return read ? "none" : read.error().code + " " + read.error().message;
}

TEST(JsonFields, SayWhatIsWrongWhere) {
  EXPECT_EQ(fault("seed", "-1"), "json.type w: key 'seed': found -1, wanted an integer from 0 on");
  EXPECT_EQ(fault("colour", "\"green\""), "json.type w: unknown colour 'green'");
  EXPECT_EQ(fault("limit_s", "true"),
            "json.type w: key 'limit_s': found a boolean, wanted a number");
  EXPECT_EQ(fault("parts", "3"), "json.type w: key 'parts': wanted a list");
  EXPECT_EQ(fault("parts", R"([{"name": "a", "size": 1}, {"name": "b"}])"),
            "json.missing-key w: parts[1]: key 'size' is missing");
  EXPECT_EQ(fault("parts", R"([{"name": "a", "size": 0}])"),
            "part.size w: parts[0]: wanted a size above 0");
  EXPECT_EQ(fault("weights", "[1, \"x\"]"), "json.type w: key 'weights': wanted numbers");
  EXPECT_EQ(fault("hashes", R"({"f": 1})"),
            "json.type w: hashes: key 'f': found an integer, wanted a string");
  EXPECT_EQ(fault("move", R"({"do": "jump"})"),
            "policy.kind w: key 'do': found 'jump', wanted one of turn, stop");
  EXPECT_EQ(fault("size", "1"), "json.unknown-key w: unknown key 'size'");
  Json json = fields_to_json(Whole());
  json.erase("limit_s");
  EXPECT_EQ(fields_from_json<Whole>(json, "w").error().message, "w: key 'limit_s' is missing");
}

}  // namespace
}  // namespace motley
