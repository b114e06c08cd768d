#include "motley/data/npz.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <zlib.h>

#include <cstring>

#include "motley/testing/places.h"

namespace motley::data {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string little(std::uint64_t value, int width) {
  std::string text;
  for (int i = 0; i < width; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string npy(const std::string& header, const std::string& data, int version = 1) {
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' +
         little(header.size(), version == 1 ? 2 : 4) + header + data;
}

std::string floats(int count) { return std::string(static_cast<std::size_t>(count) * 4, '\1'); }

const std::string kHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";

std::string npy_message(const std::string& array) {
  const auto view = parse_npy(bytes_of(array), "x.npy");
  return view ? "no error" : view.error().message;
}

TEST(Npy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const std::string array = npy(kHeader, floats(6), version);
    const auto view = parse_npy(bytes_of(array), "x.npy");
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->dtype, DType::kF32);
    EXPECT_EQ(view->shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(view->bytes.data() + 24, bytes_of(array).data() + array.size());
  }
}

TEST(Npy, ReadsEveryTypeAndShape) {
  const auto read = [](const std::string& descr, const std::string& shape, int bytes) {
    const std::string array =
        npy("{\"shape\":" + shape + ",'fortran_order':True,'descr':'" + descr + "'}",
            std::string(static_cast<std::size_t>(bytes), '\0'));
    const auto view = parse_npy(bytes_of(array), "x.npy");
    EXPECT_TRUE(view) << view.error().message;
    return view ? view->dtype : DType::kNone;
  };
  EXPECT_EQ(read("<f8", "(3,)", 24), DType::kF64);
  EXPECT_EQ(read("<f2", "(3,)", 6), DType::kF16);
  EXPECT_EQ(read("<i8", "()", 8), DType::kI64);
  EXPECT_EQ(read("=i4", "(2,)", 8), DType::kI32);
  EXPECT_EQ(read("i2", "(0,)", 0), DType::kI16);
  EXPECT_EQ(read("|i1", "(2,)", 2), DType::kI8);
  EXPECT_EQ(read("|u1", "(2,)", 2), DType::kU8);
  EXPECT_EQ(read("|b1", "(2,)", 2), DType::kBool);
}

TEST(Npy, RefusesWhatItCannotRead) {
  EXPECT_EQ(npy_message("PK"), "x.npy: not a .npy array");
  EXPECT_EQ(npy_message(npy(kHeader, floats(6), 4)), "x.npy: .npy version 4, wanted 1 to 3");
  EXPECT_EQ(npy_message(std::string("\x93NUMPY\1\0\xff\xff{}", 12)),
            "x.npy: truncated: a header of 65535 bytes in 12");
  EXPECT_EQ(npy_message(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", floats(6))),
            "x.npy: Fortran order; save numpy.ascontiguousarray(array)");
  EXPECT_EQ(npy_message(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", floats(2))),
            "x.npy: big-endian numbers ('>f4'); save array.astype('<f4')");
  EXPECT_EQ(npy_message(npy("{'descr': '<U3', 'fortran_order': False, 'shape': ()}", floats(3))),
            "x.npy: numpy type '<U3', wanted one of f8 f4 f2 i8 i4 i2 i1 u1 b1");
  EXPECT_EQ(npy_message(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "")),
            "x.npy: a structured array, wanted one array for each input");
  EXPECT_EQ(npy_message(npy(kHeader, floats(5))),
            "x.npy: 20 bytes of data, wanted 24 for f32[2, 3]; is it truncated?");
  EXPECT_EQ(
      npy_message(npy("{'descr':'<f8','fortran_order':False,'shape':(4611686018427387904,8)}", "")),
      "x.npy: 0 bytes of data, wanted more than there can be for f64[4611686018427387904, 8]; "
      "is it truncated?");
}

TEST(Npy, RefusesBrokenHeaders) {
  const auto header_message = [](const std::string& header) {
    const std::string message = npy_message(npy(header, floats(6)));
    const std::string start = "x.npy: broken header of a .npy array at byte ";
    EXPECT_EQ(message.substr(0, start.size()), start);
    return message.substr(std::min(message.size(), start.size()));
  };
  EXPECT_EQ(header_message("[1, 2]"), "0: wanted '{'");
  EXPECT_EQ(header_message("{'descr' 1"), "9: wanted ':'");
  EXPECT_EQ(header_message("{descr"), "1: wanted a text in quotes");
  EXPECT_EQ(header_message("{'descr"), "1: a text without end");
  EXPECT_EQ(header_message("{'a\\'': 1}"), "1: a text that is not plain ASCII");
  EXPECT_EQ(header_message("{'order': 1}"), "9: unknown key 'order'");
  EXPECT_EQ(header_message("{'fortran_order': 1}"), "18: wanted True or False");
  EXPECT_EQ(header_message("{'shape': 3}"), "10: wanted '('");
  EXPECT_EQ(header_message("{'shape': (-1,)}"), "11: wanted a size");
  EXPECT_EQ(header_message("{'shape': (3"), "11: wanted a size");
  EXPECT_EQ(header_message("{'shape': (99999999999999999999,)}"), "11: wanted a size");
  EXPECT_EQ(header_message("{'shape': (3 4)}"), "13: wanted ',' or ')'");
  EXPECT_EQ(header_message("{'shape': (3) 'descr'"), "14: wanted ',' or '}'");
  EXPECT_EQ(header_message("{'shape': (3)}"), "14: wanted the keys descr, fortran_order and shape");
  EXPECT_EQ(header_message("{'shape': (), 'shape': (), 'descr': '<f4'}"),
            "42: wanted the keys descr, fortran_order and shape");
}

/// A zip archive of stored or deflated members, with optional faults.
struct Zip {
  struct Member {
    std::string name, contents;
    int method = 0;  ///< 0 stored, 8 deflated
    int flags = 0;
    bool is_zip64 = false;
    bool has_wrong_checksum = false;
  };
  std::vector<Member> members;
  bool has_end_64 = false;
  std::string comment;

  static std::string deflated(const std::string& text) {
    std::string out(compressBound(text.size()), '\0');
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }

  std::string text() const {
    std::string out, directory;
    for (const Member& member : members) {
      const std::string stored = member.method == 8 ? deflated(member.contents) : member.contents;
      auto checksum = static_cast<std::uint32_t>(crc32_z(
          0, reinterpret_cast<const Bytef*>(member.contents.data()), member.contents.size()));
      if (member.has_wrong_checksum) checksum ^= 1;
      const std::string sizes = little(stored.size(), 4) + little(member.contents.size(), 4);
      const std::string extra = member.is_zip64
                                    ? little(0x7777, 2) + little(1, 2) + "?" + little(1, 2) +
                                          little(24, 2) + little(member.contents.size(), 8) +
                                          little(stored.size(), 8) + little(out.size(), 8)
                                    : "";
      directory += "PK\1\2" + little(45, 2) + little(45, 2) + little(member.flags, 2) +
                   little(member.method, 2) + little(0, 4) + little(checksum, 4) +
                   (member.is_zip64 ? std::string(8, '\xff') : sizes) +
                   little(member.name.size(), 2) + little(extra.size(), 2) + little(1, 2) +
                   little(0, 2) + little(0, 2) + little(0, 4) +
                   little(member.is_zip64 ? 0xffffffff : out.size(), 4) + member.name + extra + "c";
      out += "PK\3\4" + little(45, 2) + little(member.flags, 2) + little(member.method, 2) +
             little(0, 4) + little(checksum, 4) + sizes + little(member.name.size(), 2) +
             little(2, 2) + member.name + "??" + stored;
    }
    const std::size_t start = out.size();
    out += directory;
    if (has_end_64) {
      const std::size_t end_64 = out.size();
      out += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
             little(members.size(), 8) + little(members.size(), 8) + little(directory.size(), 8) +
             little(start, 8);
      out += "PK\6\7" + little(0, 4) + little(end_64, 8) + little(1, 4);
    }
    const bool is_hidden = has_end_64;
    out += "PK\5\6" + little(0, 4) + little(is_hidden ? 0xffff : members.size(), 2) +
           little(is_hidden ? 0xffff : members.size(), 2) +
           little(is_hidden ? 0xffffffff : directory.size(), 4) +
           little(is_hidden ? 0xffffffff : start, 4) + little(comment.size(), 2) + comment;
    return out;
  }
};

std::string npz_message(const std::string& archive) {
  auto npz = Npz::parse(bytes_of(archive), "d.npz");
  if (!npz) return npz.error().message;
  for (const std::string& name : npz->names()) {
    const auto array = npz->array(name);
    if (!array) return array.error().message;
  }
  return "no error";
}

Zip one_array() { return Zip{{{.name = "x.npy", .contents = npy(kHeader, floats(6))}}}; }

TEST(Npz, ReadsWhatNumpyWrites) {
  const std::string folder = testing::source_path("motley/data/testdata/");
  for (const auto& [file, x, y] :
       {std::tuple("stored.npz", "x", "y"), std::tuple("deflated.npz", "x0", "x1")}) {
    SCOPED_TRACE(file);
    auto npz = Npz::open(folder + file);
    ASSERT_TRUE(npz) << npz.error().message;
    EXPECT_EQ(npz->names(), (std::vector<std::string>{x, y}));
    const auto floats = npz->array(x);
    ASSERT_TRUE(floats) << floats.error().message;
    EXPECT_EQ(floats->dtype, DType::kF32);
    EXPECT_EQ(floats->shape, (std::vector<std::int64_t>{4, 2, 3}));
    // numpy.arange(24): element 23 is 23.
    float last = 0;
    std::memcpy(&last, floats->bytes.data() + std::size_t{23} * 4, 4);
    EXPECT_EQ(last, 23.0F);
    const auto labels = npz->array(y);
    ASSERT_TRUE(labels) << labels.error().message;
    EXPECT_EQ(labels->dtype, DType::kI64);
    // A second read gives the same bytes: nothing is inflated twice.
    EXPECT_EQ(npz->array(x)->bytes.data(), floats->bytes.data());
  }
}

TEST(Npz, ViewsStayValidWhenTheArchiveMoves) {
  auto npz = Npz::open(testing::source_path("motley/data/testdata/deflated.npz"));
  ASSERT_TRUE(npz);
  const auto before = npz->array("x1");
  const Npz moved = std::move(*npz);
  std::int64_t first = 0;
  std::memcpy(&first, before->bytes.data(), 8);
  EXPECT_EQ(first, 3);
}

TEST(Npz, ReadsStoredArraysWithoutACopy) {
  const std::string archive = one_array().text();
  auto npz = Npz::parse(bytes_of(archive), "d.npz");
  ASSERT_TRUE(npz);
  const auto view = npz->array("x");
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_GE(view->bytes.data(), bytes_of(archive).data());
  EXPECT_LT(view->bytes.data(), bytes_of(archive).data() + archive.size());
}

TEST(Npz, ReadsZip64CommentsAndOtherMembers) {
  Zip zip = one_array();
  zip.members[0].is_zip64 = true;
  zip.members.push_back({.name = "y.npy", .contents = npy(kHeader, floats(6)), .method = 8});
  zip.members.push_back({.name = "readme.txt", .contents = "hello"});
  zip.has_end_64 = true;
  zip.comment = "made by hand PK\5\6";
  const std::string archive = zip.text();
  EXPECT_EQ(npz_message(archive), "no error");
  const auto npz = Npz::parse(bytes_of(archive), "d.npz");
  EXPECT_EQ(npz->names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(npz->has("x"));
  EXPECT_FALSE(npz->has("readme"));
}

TEST(Npz, RefusesFilesThatAreNoArchive) {
  const std::string message =
      "d.npz: not a .npz file (no zip directory at its end); is it truncated?";
  EXPECT_EQ(npz_message(""), message);
  EXPECT_EQ(npz_message(std::string(100, 'x')), message);
  const std::string archive = one_array().text();
  EXPECT_EQ(npz_message(archive.substr(0, archive.size() - 1)), message);
  EXPECT_EQ(Npz::open("/nowhere/d.npz").error().message, "/nowhere/d.npz: no such file");
}

TEST(Npz, RefusesBrokenDirectories) {
  const std::string archive = one_array().text();
  const std::size_t end = archive.size() - 22;
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string text = archive;
    return text.replace(at, bytes.size(), bytes);
  };
  EXPECT_EQ(npz_message(with(end + 16, little(1 << 20, 4))),
            "d.npz: the directory lies outside the file; is it truncated?");
  EXPECT_EQ(npz_message(with(end + 10, little(2, 2))), "d.npz: broken zip directory");
  EXPECT_EQ(npz_message(with(end + 16, little(0, 4))), "d.npz: broken zip directory");
  const std::size_t entry = archive.find("PK\1\2");
  EXPECT_EQ(npz_message(with(entry + 28, little(60000, 2))), "d.npz: broken zip directory");
  EXPECT_EQ(npz_message(with(entry + 46, "\n")), "d.npz: an array's name holds control characters");
  EXPECT_EQ(npz_message(with(entry + 42, little(7, 4))),
            "d.npz: array 'x': does not start where the directory says; is the file truncated?");
  EXPECT_EQ(npz_message(with(entry + 20, little(1 << 20, 4))),
            "d.npz: array 'x': ends beyond the file; is it truncated?");
  EXPECT_EQ(npz_message(with(entry + 24, little(3, 4))), "d.npz: array 'x': two sizes that differ");
  EXPECT_EQ(npz_message(with(entry + 24, little(0xffffffff, 4))),
            "d.npz: array 'x': two sizes "
            "that differ");
  Zip zip = one_array();
  zip.members.push_back(zip.members[0]);
  EXPECT_EQ(npz_message(zip.text()), "d.npz: two arrays named 'x'");
  zip = one_array();
  zip.has_end_64 = true;
  std::string text = zip.text();
  text.replace(text.find("PK\6\7") + 8, 8, little(1, 8));
  EXPECT_EQ(npz_message(text), "d.npz: broken zip64 directory");
  zip.members[0].is_zip64 = true;
  text = zip.text();
  text.replace(text.find("x.npy", text.find("PK\1\2")) + 12, 2, little(10, 2));
  EXPECT_EQ(npz_message(text), "d.npz: broken zip64 field");
}

TEST(Npz, RefusesMembersItCannotRead) {
  Zip zip = one_array();
  zip.members[0].flags = 1;
  EXPECT_EQ(npz_message(zip.text()), "d.npz: array 'x': is encrypted");
  zip = one_array();
  zip.members[0].method = 12;
  EXPECT_EQ(
      npz_message(zip.text()),
      "d.npz: array 'x': zip compression 12, wanted stored or deflated; save with numpy.savez "
      "or numpy.savez_compressed");
  for (const int method : {0, 8}) {
    zip = one_array();
    zip.members[0].method = method;
    zip.members[0].has_wrong_checksum = true;
    EXPECT_EQ(npz_message(zip.text()),
              "d.npz: array 'x': its checksum does not match: the file is corrupt");
  }
}

TEST(Npz, RefusesDeflatedDataOfAnotherSize) {
  Zip zip = one_array();
  zip.members[0].method = 8;
  const std::string archive = zip.text();
  const std::size_t size_at = archive.find("PK\1\2") + 24;
  const auto with_size = [&](std::uint64_t size) {
    std::string text = archive;
    return npz_message(text.replace(size_at, 4, little(size, 4)));
  };
  const std::uint64_t size = zip.members[0].contents.size();
  const std::string corrupt = "d.npz: array 'x': its deflated data are corrupt";
  EXPECT_EQ(with_size(size - 1), corrupt);
  EXPECT_EQ(with_size(size + 1), corrupt);
  // Deflated data cannot be that long, so no memory is allocated.
  const std::uint64_t stored = Zip::deflated(zip.members[0].contents).size();
  EXPECT_EQ(with_size(0xfffffffe), "d.npz: array 'x': 4294967294 bytes cannot come from " +
                                       std::to_string(stored) + " deflated ones");
  std::string text = archive;
  text[30 + 5 + 2] = '\x07';  // block type 3 does not exist
  EXPECT_EQ(npz_message(text), corrupt);
}

// Damage gives an error or other arrays, never a crash.
RC_GTEST_PROP(NpzProperty, DamagedArchivesAreRefusedCleanly, ()) {
  Zip zip = one_array();
  zip.members[0].is_zip64 = *rc::gen::arbitrary<bool>();
  zip.members.push_back({.name = "y.npy", .contents = npy(kHeader, floats(6)), .method = 8});
  zip.has_end_64 = *rc::gen::arbitrary<bool>();
  std::string text = zip.text();
  for (int i = 0, count = *rc::gen::inRange(1, 4); i < count; ++i) {
    text[*rc::gen::inRange<std::size_t>(0, text.size())] =
        static_cast<char>(*rc::gen::element(0, 1, 0x7f, 0x80, 0xff, '{', '9'));
  }
  const std::string message = npz_message(text);
  RC_ASSERT(message == "no error" || message.starts_with("d.npz: "));
}

}  // namespace
}  // namespace motley::data
