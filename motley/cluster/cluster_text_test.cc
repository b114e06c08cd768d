#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/cluster/cluster.h"
#include "motley/cluster/kinds.h"
#include "motley/testing/places.h"

namespace motley::cluster {
namespace {

// A node "a" with a CPU device; more lines of the node begin at line 5, of the device at line 7.
std::string file_with(const std::string& node_lines, const std::string& device_lines = "",
                      const std::string& rest = "") {
  return "schema = \"motley.cluster/1\"\nname = \"lab\"\n[[node]]\nname = \"a\"\n" + node_lines +
         "[[node.device]]\nkind = \"cpu\"\n" + device_lines + rest;
}

std::string message_of(const std::string& text) {
  const auto cluster = parse_cluster(text, "lab.toml");
  return cluster ? "no error" : cluster.error().message;
}

std::string code_of(const std::string& text) {
  const auto cluster = parse_cluster(text, "lab.toml");
  return cluster ? "no error" : cluster.error().code;
}

TEST(ClusterText, ReadsTheExampleOfTheFormatPage) {
  const auto cluster = parse_cluster(R"(
schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
host = "127.0.0.1"
spot = true
price_per_hour = 1
notice = "120s"
  [[node.device]]
  kind = "cpu"
  count = 2
  threads = 3
  speed = 0.4
  memory = "512MiB"
[[node]]
name = "b"
  [[node.device]]
  kind = "cuda"
  [[node.device]]
  kind = "t4"
  [[node.device]]
  kind = "cuda"
[[link]]
between = ["b", "a"]
bandwidth = "1Gbps"
latency = "3ms"
[[link]]
all = true
bandwidth = 1000
)",
                                     "lab.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->name, "lab");
  ASSERT_EQ(cluster->nodes.size(), 2U);
  EXPECT_EQ(cluster->nodes[0], (Node{"a", "127.0.0.1", true, "", 1.0, Seconds(120)}));
  EXPECT_EQ(cluster->nodes[1], (Node{"b", "", false, "", std::nullopt, std::nullopt}));
  ASSERT_EQ(cluster->devices.size(), 5U);
  const Bytes half_gib(512 << 20), t4(std::int64_t{16} << 30);
  EXPECT_EQ(cluster->devices[0], (Device{NodeId(0), "a:0", "cpu", "", 0, 0, 3, 0.4, half_gib}));
  EXPECT_EQ(cluster->devices[1], (Device{NodeId(0), "a:1", "cpu", "", 1, 1, 3, 0.4, half_gib}));
  EXPECT_EQ(cluster->devices[2], (Device{NodeId(1), "b:0", "cuda", "", 0, 0, 1, 1.0, {}}));
  EXPECT_EQ(cluster->devices[3], (Device{NodeId(1), "b:1", "t4", "", 1, 0, 1, 1.0, t4}));
  EXPECT_EQ(cluster->devices[4], (Device{NodeId(1), "b:2", "cuda", "", 2, 1, 1, 1.0, {}}));
  ASSERT_EQ(cluster->links.size(), 2U);
  // 1 Gbps = 1e9 / 8 bytes per second.
  EXPECT_EQ(cluster->links[0].between, (std::vector{NodeId(1), NodeId(0)}));
  EXPECT_EQ(cluster->links[0].bandwidth, BytesPerSecond(1.25e8));
  EXPECT_DOUBLE_EQ(cluster->links[0].latency.value, 0.003);
  EXPECT_EQ(cluster->links[1], (Link{{}, BytesPerSecond(1000), Seconds(0)}));
}

// MOTLEY_RECAPTURE=1 rewrites the expected texts; read the difference before you commit it.
TEST(ClusterText, GoldenFilesPrintAsCaptured) {
  const std::filesystem::path root = testing::source_path("tests/golden/cluster");
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto cluster = read_cluster((entry.path() / "in.toml").string());
    ASSERT_TRUE(cluster) << cluster.error().message;
    const std::string printed = print_cluster(*cluster);
    const std::string expected_path = (entry.path() / "out.toml").string();
    if (std::getenv("MOTLEY_RECAPTURE") != nullptr) {
      ASSERT_TRUE(write_file_atomic(expected_path, printed));
    }
    const auto expected = read_file(expected_path);
    ASSERT_TRUE(expected) << expected.error().message;
    EXPECT_EQ(printed, *expected);
    const auto again = parse_cluster(printed, "printed");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *cluster);
    EXPECT_EQ(cluster_hash(*again), cluster_hash(*cluster));
    ++cases;
  }
  EXPECT_GE(cases, 4);
}

TEST(ClusterText, NamesTheLineOfAnUnknownKey) {
  EXPECT_EQ(message_of(file_with("", "sped = 0.5\n")),
            "lab.toml:7: unknown key 'sped' in [[node.device]], did you mean 'speed'?; known keys: "
            "kind, model, count, threads, speed, quota, memory, uuid");
  EXPECT_EQ(code_of(file_with("", "sped = 0.5\n")), "cluster.unknown-key");
  // The first in the file, not in the alphabet.
  EXPECT_EQ(message_of(file_with("rack = 1\nact = 2\n")),
            "lab.toml:5: unknown key 'rack' in [[node]]; known keys: name, "
            "host, spot, zone, price_per_hour, notice, bandwidth, peers, device");
  EXPECT_EQ(
      message_of("nodes = 1\nschema = \"motley.cluster/1\"\n"),
      "lab.toml:1: unknown key 'nodes' in the cluster file, did you mean 'node'?; known keys: "
      "schema, name, transport, node, link");
  EXPECT_EQ(
      message_of(file_with("", "", "[[link]]\nall = true\nbandwith = 1\n")),
      "lab.toml:9: unknown key 'bandwith' in [[link]], did you mean 'bandwidth'?; known keys: "
      "between, all, bandwidth, latency, capacity");
}

TEST(ClusterText, RefusesWhatIsNoToml) {
  EXPECT_EQ(code_of("name = \n"), "cluster.parse");
  EXPECT_THAT(message_of("name = 1\nname = \n"),
              ::testing::StartsWith("lab.toml:2: not valid TOML: "));
  EXPECT_EQ(code_of("[."), "cluster.parse");
  EXPECT_EQ(message_of("a = 1\n# " + std::string(5000, 'x')),
            "lab.toml:2: a line of 5002 bytes, wanted at most 4096; break the array into lines");
  EXPECT_EQ(message_of(std::string((4 << 20) + 1, '\n')),
            "lab.toml: 4194305 bytes, wanted at most 4194304");
}

TEST(ClusterText, WantsAsciiOutsideComments) {
  const std::string refused =
      "lab.toml:5: a character that is not ASCII, wanted ASCII outside comments";
  EXPECT_EQ(message_of(file_with("host = \"caf\xc3\xa9\"\n")), refused);
  EXPECT_EQ(message_of(file_with("\xc3\xa9 = 1\n")), refused);
  EXPECT_EQ(message_of(file_with("host = \"a\\\"# \xef\xae\xbb\"\n")), refused);
  EXPECT_EQ(message_of(file_with("host = 'a\\' # caf\xc3\xa9 \"\n")),
            "lab.toml:3: node 'a': host \"a\\\\\", wanted a host name or address");
  EXPECT_EQ(message_of(file_with("# caf\xc3\xa9\n")), "no error");
  EXPECT_EQ(message_of("\xef\xbb\xbf" + file_with("")), "no error");
}

TEST(ClusterText, RefusesAnotherSchema) {
  EXPECT_EQ(message_of("name = \"x\"\n"),
            "lab.toml:1: no key 'schema', wanted schema = \"motley.cluster/1\"");
  EXPECT_EQ(message_of("\nschema = \"motley.cluster/2\"\n"),
            "lab.toml:2: schema \"motley.cluster/2\", wanted \"motley.cluster/1\"");
}

TEST(ClusterText, RefusesAnotherTransport) {
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\nname = \"x\"\ntransport = \"tcp\"\n"),
            "lab.toml:3: key 'transport': found tcp, wanted auto or gloo");
}

TEST(ClusterText, RefusesMissingKeys) {
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\n"),
            "lab.toml:1: the cluster file has no key 'name'");
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\nname = \"x\"\n[[node]]\n"),
            "lab.toml:3: [[node]] has no key 'name'");
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\nname = \"x\"\n[[node]]\nname = \"a\"\n"
                       "[[node.device]]\nthreads = 1\n"),
            "lab.toml:5: [[node.device]] has no key 'kind'");
  EXPECT_EQ(message_of(file_with("", "", "[[link]]\nall = true\n")),
            "lab.toml:7: [[link]] has no key 'bandwidth'");
}

TEST(ClusterText, RefusesWrongTypes) {
  EXPECT_EQ(message_of(file_with("spot = 1\n")),
            "lab.toml:5: key 'spot': found an integer, wanted true or false");
  EXPECT_EQ(message_of(file_with("host = 1.5\n")),
            "lab.toml:5: key 'host': found a number, wanted a string");
  EXPECT_EQ(message_of(file_with("host = \"\"\n")),
            "lab.toml:5: key 'host': is empty; leave the key out");
  EXPECT_EQ(message_of(file_with("", "threads = \"2\"\n")),
            "lab.toml:7: key 'threads': found a string, wanted an integer");
  EXPECT_EQ(message_of(file_with("", "threads = 3000000000\n")),
            "lab.toml:7: key 'threads': 3000000000 is too large");
  EXPECT_EQ(message_of(file_with("", "speed = \"half\"\n")),
            "lab.toml:7: key 'speed': found a string, wanted a number");
  EXPECT_EQ(message_of(file_with("", "memory = 1.5\n")),
            "lab.toml:7: key 'memory': found a number, wanted a text with a unit or an integer");
  EXPECT_EQ(message_of(file_with("", "memory = \"big\"\n")),
            "lab.toml:7: key 'memory': found 'big', wanted a size such as 512MiB, 24GiB, 1.2GB");
  EXPECT_EQ(
      message_of(file_with("notice = 07:32:00\n")),
      "lab.toml:5: key 'notice': found a date or time, wanted a text with a unit or a number");
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\nname = \"x\"\n[node]\nname = \"a\"\n"),
            "lab.toml:3: key 'node': found a table, wanted tables, each headed [[node]]");
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\nname = \"x\"\nlink = [1]\n"),
            "lab.toml:3: key 'link': found an array, wanted tables, each headed [[link]]");
}

TEST(ClusterText, RefusesWrongCounts) {
  EXPECT_EQ(message_of(file_with("", "count = 0\n")),
            "lab.toml:7: key 'count': found 0, wanted 1 to 1024");
  EXPECT_EQ(message_of(file_with("", "count = 1025\n")),
            "lab.toml:7: key 'count': found 1025, wanted 1 to 1024");
  EXPECT_EQ(code_of(file_with("", "count = 1024\n")), "no error");
  std::string many;
  for (int i = 0; i < 65; ++i) many += "[[node.device]]\nkind = \"cpu\"\ncount = 1024\n";
  // Line 6 holds one device and line 7 + 3 (i - 1) the i-th table of 1024; the 64th does not fit.
  EXPECT_EQ(message_of(file_with("", "", many)), "lab.toml:196: more than 65536 devices");
}

TEST(ClusterText, RefusesWrongLinks) {
  const auto link = [](const std::string& lines) {
    return message_of(file_with("", "", "[[link]]\nbandwidth = 1\n" + lines));
  };
  const std::string either =
      "lab.toml:7: [[link]] wants either between = [\"a\", \"b\"] or all = true";
  EXPECT_EQ(link(""), either);
  EXPECT_EQ(link("all = false\n"), either);
  EXPECT_EQ(link("all = true\nbetween = [\"a\"]\n"), either);
  EXPECT_EQ(link("between = \"a\"\n"),
            "lab.toml:9: key 'between': found a string, wanted an array of node names");
  EXPECT_EQ(link("between = []\n"), "lab.toml:9: key 'between': is empty, wanted node names");
  EXPECT_EQ(link("between = [1]\n"),
            "lab.toml:9: key 'between': found an integer, wanted node names");
  EXPECT_EQ(link("between = [\"a\", \"A\"]\n"),
            "lab.toml:9: key 'between': unknown node 'A'; nodes: a");
  EXPECT_EQ(message_of(file_with("", "", "[[link]]\nall = true\nbandwidth = \"1 metre\"\n")),
            "lab.toml:9: key 'bandwidth': found '1 metre', wanted a rate such as 10Gbps, 100Mbps, "
            "40GB/s");
  EXPECT_EQ(
      message_of(file_with("", "", "[[link]]\nall = true\nbandwidth = 1\nlatency = \"fast\"\n")),
      "lab.toml:10: key 'latency': found 'fast', wanted a time such as 120s, 3ms, 100us");
}

TEST(ClusterText, ReportsAllViolationsWithTheirLines) {
  EXPECT_EQ(message_of(R"(schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
price_per_hour = -1
bandwidth = 0
  [[node.device]]
  kind = "cpu"
  speed = 1.5
  [[node.device]]
  kind = "cuda"
  speed = 0.5
  memory = 0
[[node]]
name = "a"
[[link]]
between = ["a", "a"]
bandwidth = 0
latency = "0s"
capacity = -1
)"),
            "lab.toml:3: node 'a': price_per_hour -1.0, wanted >= 0\n"
            "lab.toml:3: node 'a': bandwidth of 0.0 bytes/s, wanted > 0\n"
            "lab.toml:14: node 'a': name is used twice\n"
            "lab.toml:14: node 'a': no [[node.device]], wanted at least one\n"
            "lab.toml:7: device 'a:0': speed = 1.5, wanted > 0 and <= 1\n"
            "lab.toml:10: device 'a:1': speed = 0.5 on kind \"cuda\": only \"cpu\" devices can be "
            "slowed down\n"
            "lab.toml:10: device 'a:1': memory of 0 bytes, wanted > 0\n"
            "lab.toml:16: link 0: names node 'a' twice\n"
            "lab.toml:16: link 0: bandwidth of 0.0 bytes/s, wanted > 0\n"
            "lab.toml:16: link 0: capacity of -1.0 bytes/s, wanted > 0");
  EXPECT_EQ(message_of("schema = \"motley.cluster/1\"\nname = \"lab\"\n"),
            "lab.toml:2: no [[node]], wanted at least one");
}

TEST(ClusterText, ReadingAMissingFileNamesIt) {
  const auto cluster = read_cluster("/nowhere/lab.toml");
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().message, "/nowhere/lab.toml: no such file");
}

// --- parse(print(c)) == c -----------------------------------------------------------------------

rc::Gen<double> positive() {
  return rc::gen::map(rc::gen::arbitrary<std::uint32_t>(), [](std::uint32_t bits) {
    // From whole units to awkward fractions, 1e-6 to 4e9.
    const double value = static_cast<double>(bits % 1000 + 1);
    return bits % 3 == 0 ? value * 1e-6 : bits % 3 == 1 ? value * 1e6 : 1.0 / value + bits;
  });
}

Device draw_device() {
  Device device;
  const auto kinds = known_kinds();
  device.kind = *rc::gen::elementOf(kinds);
  device.threads = *rc::gen::inRange(1, 1025);
  if (device.kind == "cpu") device.speed = 1.0 / *rc::gen::inRange(1, 50);
  if (device.kind == "cuda" && *rc::gen::arbitrary<bool>()) device.model = "NVIDIA \"A\" \\10";
  const bool is_planned = device.kind != "cpu" && device.kind != "cuda";
  if (is_planned || *rc::gen::arbitrary<bool>()) {
    device.memory = Bytes(*rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 44));
  }
  return device;
}

void add_node(Cluster& cluster) {
  Node node;
  const auto id = static_cast<std::int64_t>(cluster.nodes.size());
  node.name = std::string(*rc::gen::inRange<std::size_t>(1, 20), 'n') + "-" + std::to_string(id);
  if (*rc::gen::arbitrary<bool>()) node.host = "host.example";
  node.spot = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) node.zone = "us-west1-b";
  if (*rc::gen::arbitrary<bool>()) node.price_per_hour = *positive();
  if (*rc::gen::arbitrary<bool>()) node.notice = Seconds(*positive());
  if (*rc::gen::arbitrary<bool>()) node.bandwidth = BytesPerSecond(*positive());
  cluster.nodes.push_back(node);
  std::map<std::string, int> kind_count;
  Device device = draw_device();
  for (int index = 0, count = *rc::gen::inRange(1, 5); index < count; ++index) {
    if (*rc::gen::arbitrary<bool>()) device = draw_device();
    device.node = NodeId(id);
    device.index = index;
    device.local_index = kind_count[device.kind]++;
    device.name = node.name + ":" + std::to_string(index);
    cluster.devices.push_back(device);
  }
}

Cluster draw_cluster() {
  Cluster cluster;
  cluster.name = *rc::gen::element<std::string>("lab", "my \"lab\" \\ 3", "x");
  cluster.transport = *rc::gen::element<std::string>("auto", "gloo");
  for (int i = 0, count = *rc::gen::inRange(1, 5); i < count; ++i) add_node(cluster);
  std::set<std::set<NodeId>> joined;
  for (int i = 0, count = *rc::gen::inRange(0, 4); i < count; ++i) {
    Link link{{}, BytesPerSecond(*positive()), Seconds(*positive())};
    if (*rc::gen::arbitrary<bool>()) link.capacity = BytesPerSecond(*positive());
    for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
      if (*rc::gen::arbitrary<bool>()) link.between.emplace_back(static_cast<std::int64_t>(n));
    }
    if (joined.emplace(link.between.begin(), link.between.end()).second) {
      cluster.links.push_back(link);
    }
  }
  return cluster;
}

RC_GTEST_PROP(ClusterTextProperty, PrintedClustersReadBackEqual, ()) {
  const Cluster cluster = draw_cluster();
  const auto verified = verify_cluster(cluster, "drawn");
  if (!verified) RC_FAIL(verified.error().message);
  const std::string text = print_cluster(cluster);
  const auto again = parse_cluster(text, "printed");
  if (!again) RC_FAIL(again.error().message + "\n" + text);
  RC_ASSERT(*again == cluster);
  RC_ASSERT(print_cluster(*again) == text);
}

// Damage gives an error or another cluster, never a crash.
RC_GTEST_PROP(ClusterTextProperty, DamagedTextsAreRefusedCleanly, ()) {
  std::string text = print_cluster(draw_cluster());
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  text[at] = *rc::gen::element('\0', '\n', '"', '[', '.', '\x80', '9', '=');
  const auto cluster = parse_cluster(text.substr(0, *rc::gen::inRange(at, text.size() + 1)), "bad");
  if (!cluster) {
    RC_ASSERT(cluster.error().kind == ErrorKind::kUsage);
    RC_ASSERT(cluster.error().message.starts_with("bad:"));
  }
}

TEST(ClusterText, GpusMayBeNamedByUuid) {
  const std::string text =
      "schema = \"motley.cluster/1\"\nname = \"u\"\n\n[[node]]\nname = \"n\"\n"
      "  [[node.device]]\n  kind = \"cuda\"\n  uuid = \"GPU-a\"\n"
      "  [[node.device]]\n  kind = \"cuda\"\n  uuid = \"GPU-b\"\n";
  const auto cluster = parse_cluster(text, "u.toml");
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->devices[1].uuid, "GPU-b");
  EXPECT_EQ(parse_cluster(print_cluster(*cluster), "u.toml"), *cluster);
  EXPECT_FALSE(
      parse_cluster("schema = \"motley.cluster/1\"\nname = \"u\"\n[[node]]\nname = \"n\"\n"
                    "  [[node.device]]\n  kind = \"cpu\"\n  uuid = \"GPU-a\"\n",
                    "u.toml"));
}

TEST(ClusterText, ANodeSaysHowItsGpusReachEachOther) {
  const std::string head =
      "schema = \"motley.cluster/1\"\nname = \"p\"\n\n[[node]]\nname = \"n\"\n";
  const std::string devices = "  [[node.device]]\n  kind = \"cuda\"\n  count = 2\n";
  const auto cluster = parse_cluster(head + "peers = \"nvlink\"\n" + devices, "p.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->nodes[0].peers, "nvlink");
  EXPECT_EQ(parse_cluster(print_cluster(*cluster), "p.toml"), *cluster);
  EXPECT_EQ(parse_cluster(head + "peers = \"pcie\"\n" + devices, "p.toml").error().message,
            "p.toml:4: node 'n': peers \"pcie\", wanted nvlink, bus or host");
}

}  // namespace
}  // namespace motley::cluster
