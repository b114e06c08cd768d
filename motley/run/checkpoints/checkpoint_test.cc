#include "motley/run/checkpoints/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json_fields.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "motley-checkpoint-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(dir_); }

  Result<std::string> write(std::int64_t step, std::size_t floats = 4) {
    values_.assign(floats, static_cast<float>(step));
    const NamedTensor weight{"w",
                             {DType::kF32,
                              {static_cast<std::int64_t>(floats)},
                              std::as_bytes(std::span<const float>(values_))}};
    const SavedTensor model{weight, {}}, moment{{"w/momentum", weight.tensor}, {}};
    state_.step = step;
    state_.samples = 8 * step;
    return CheckpointStore(dir_).write(state_, {0, 1, {&model, 1}, {&moment, 1}});
  }

  /// Writes the share of rank 0 or 1 of "w" = 0 1 2 3: three elements or one.
  Result<WrittenFiles> write_part(std::int64_t step, int rank) {
    values_ = {0, 1, 2, 3};
    const std::size_t begin = rank == 0 ? 0 : 3, count = rank == 0 ? 3 : 1;
    const NamedTensor weight{
        "w",
        {DType::kF32,
         {static_cast<std::int64_t>(count)},
         std::as_bytes(std::span<const float>(values_).subspan(begin, count))}};
    const TensorPlace place{{4}, {1, static_cast<std::int64_t>(begin), 4, 1}};
    const SavedTensor model{weight, place}, moment{{"w/momentum", weight.tensor}, place};
    return CheckpointStore(dir_).write_part(step, {rank, 2, {&model, 1}, {&moment, 1}});
  }

  Result<std::string> write_in_parts(std::int64_t step) {
    const CheckpointStore store(dir_);
    EXPECT_TRUE(store.begin(step));
    std::vector<WrittenFiles> files;
    for (int rank = 0; rank < 2; ++rank) files.push_back(*write_part(step, rank));
    state_.step = step;
    state_.samples = 8 * step;
    return store.finish(state_, files);
  }

  static std::vector<float> values_of(const TensorFiles& files, const std::string& name) {
    std::vector<float> values(4, -1);
    const program::Buffer buffer{program::BufferKind::kParameter, DType::kF32, {4}, name, {}, {}};
    EXPECT_TRUE(files.read(buffer, std::as_writable_bytes(std::span(values))));
    return values;
  }

  std::string resume_error() {
    const auto opened = CheckpointStore(dir_).open_latest();
    EXPECT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().kind, ErrorKind::kUsage);
    return opened.error().message;
  }

  std::string dir_;
  std::vector<float> values_;
  CheckpointState state_{
      .seed = ~std::uint64_t{0}, .shuffle = 3, .global_batch = 8, .model_hash = "abcd"};
};

TEST_F(CheckpointTest, NoneYet) {
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value());
  EXPECT_FALSE(opened->has_value());
}

TEST_F(CheckpointTest, WritesAndReads) {
  ASSERT_TRUE(write(20).has_value());
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ((*opened)->path, dir_ + "/checkpoint/step-00000020");
  EXPECT_EQ((*opened)->state, state_);
  EXPECT_EQ(values_of((*opened)->model, "w"), std::vector<float>(4, 20.0F));
  EXPECT_TRUE((*opened)->optimizer.has("w/momentum"));
}

TEST_F(CheckpointTest, PartsOfSeveralRanksAreOneCheckpoint) {
  const auto path = write_in_parts(20);
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_TRUE(fs::exists(*path + "/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(fs::exists(*path + "/optimizer-00002-of-00002.safetensors"));
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->state, state_);
  EXPECT_EQ(values_of((*opened)->model, "w"), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(values_of((*opened)->optimizer, "w/momentum"), (std::vector<float>{0, 1, 2, 3}));
  ASSERT_TRUE(CheckpointStore(dir_).publish(*path));
  const auto whole = Safetensors::open(dir_ + "/model.safetensors");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->tensors().at("w").shape, std::vector<std::int64_t>{4});
}

TEST_F(CheckpointTest, ConsolidatesInPlaceOrElsewhere) {
  const auto path = write_in_parts(20);
  const std::string other = dir_ + "/other/checkpoint/step-00000020";
  ASSERT_TRUE(consolidate(*open_checkpoint(*path), other));
  EXPECT_TRUE(fs::exists(*path + "/model-00001-of-00002.safetensors"));
  const auto elsewhere = CheckpointStore(dir_ + "/other").open_latest();
  ASSERT_TRUE(elsewhere) << elsewhere.error().message;
  EXPECT_EQ((*elsewhere)->state, state_);
  EXPECT_EQ(values_of((*elsewhere)->model, "w"), (std::vector<float>{0, 1, 2, 3}));
  ASSERT_TRUE(consolidate(*open_checkpoint(*path), *path));
  EXPECT_FALSE(fs::exists(*path + "/model-00001-of-00002.safetensors"));
  const auto in_place = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(in_place) << in_place.error().message;
  EXPECT_EQ(values_of((*in_place)->optimizer, "w/momentum"), (std::vector<float>{0, 1, 2, 3}));
  fs::create_directories(dir_ + "/notes/of-others");
  EXPECT_EQ(consolidate(**in_place, dir_ + "/notes").error().message,
            dir_ + "/notes: is there and is no checkpoint; name another folder");
}

TEST_F(CheckpointTest, ARankLostMidwayKeepsTheOldOne) {
  ASSERT_TRUE(write(10).has_value());
  const CheckpointStore store(dir_);
  ASSERT_TRUE(store.begin(20));
  ASSERT_TRUE(write_part(20, 0));
  const auto opened = store.open_latest();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->state.step, 10);
  const Error error = store.give_up(20, {ErrorKind::kUsage, "x", "rank 1 is gone"});
  EXPECT_EQ(error.kind, ErrorKind::kRuntime);
  EXPECT_EQ(error.message, "checkpoint of step 20 not written (" + dir_ +
                               "/checkpoint/step-00000010 is kept): rank 1 is gone");
  EXPECT_FALSE(fs::exists(dir_ + "/checkpoint/step-00000020.tmp"));
}

TEST_F(CheckpointTest, RanksThatDoNotSeeOneAnothersFilesSaySo) {
  const std::string half = dir_ + "/checkpoint/step-00000020.tmp";
  EXPECT_EQ(write_part(20, 1).error().message,
            half +
                ": not there for rank 1; all ranks must see one run directory where they keep "
                "parts of the parameters: put it on a file system that their hosts share");
  const CheckpointStore store(dir_);
  state_.step = 20;
  state_.samples = 160;
  ASSERT_TRUE(store.begin(20));
  const std::vector<WrittenFiles> files = {*write_part(20, 0),
                                           {{{"model-00002-of-00002.safetensors", "aa"}}, {}}};
  EXPECT_EQ(store.finish(state_, files).error().message,
            half +
                "/model-00002-of-00002.safetensors: not there for rank 0, though another rank "
                "wrote it; all ranks must see one run directory: put it on a file system that "
                "their hosts share");
}

TEST_F(CheckpointTest, StateNamesFilesOfItsFolderOnly) {
  const auto path = write(20);
  std::string text = *read_file(*path + "/state.json");
  text.replace(text.find("model.safetensors"), 5, "../up");
  ASSERT_TRUE(write_file_atomic(*path + "/state.json", text));
  EXPECT_EQ(open_checkpoint(*path).error().message,
            *path + "/state.json: model_files: wanted file names with their hashes");
}

TEST_F(CheckpointTest, KeepsTwo) {
  for (const std::int64_t step : {10, 20, 30}) ASSERT_TRUE(write(step).has_value());
  EXPECT_FALSE(fs::exists(dir_ + "/checkpoint/step-00000010"));
  EXPECT_TRUE(fs::exists(dir_ + "/checkpoint/step-00000020"));
  EXPECT_EQ(CheckpointStore(dir_).latest(), dir_ + "/checkpoint/step-00000030");
}

TEST_F(CheckpointTest, AnEarlierStepAfterStartingAnewIsTheLatest) {
  ASSERT_TRUE(write(100).has_value());
  ASSERT_TRUE(write(10).has_value());
  EXPECT_EQ(CheckpointStore(dir_).latest(), dir_ + "/checkpoint/step-00000010");
}

TEST_F(CheckpointTest, DamagedFileIsNamedWithTheWayOut) {
  ASSERT_TRUE(write(10).has_value());
  ASSERT_TRUE(write(20).has_value());
  const std::string bad = dir_ + "/checkpoint/step-00000020/model.safetensors";
  std::fstream file(bad, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const std::string message = resume_error();
  const std::string ending = ": the file was damaged or changed; remove " + dir_ +
                             "/checkpoint/step-00000020 and run again to go on from step-00000010";
  EXPECT_TRUE(message.starts_with(bad + ": found hash ")) << message;
  EXPECT_TRUE(message.ends_with("(state.json)" + ending)) << message;
  // The message's advice works.
  fs::remove_all(dir_ + "/checkpoint/step-00000020");
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->state.step, 10);
}

TEST_F(CheckpointTest, MissingStateIsNamed) {
  ASSERT_TRUE(write(20).has_value());
  fs::remove(dir_ + "/checkpoint/step-00000020/state.json");
  EXPECT_EQ(resume_error(), dir_ + "/checkpoint/step-00000020/state.json: no such file; remove " +
                                dir_ +
                                "/checkpoint/step-00000020 and run again to start from the "
                                "beginning");
}

TEST_F(CheckpointTest, FullDiskKeepsTheOldOne) {
  ASSERT_TRUE(write(10).has_value());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 16, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto written = write(20, 1 << 20);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().kind, ErrorKind::kRuntime);
  const std::string half = dir_ + "/checkpoint/step-00000020.tmp";
  const std::string start = "checkpoint of step 20 not written (" + dir_ +
                            "/checkpoint/step-00000010 is kept): " + half + "/model.safetensors: ";
  EXPECT_TRUE(written.error().message.starts_with(start)) << written.error().message;
  EXPECT_FALSE(fs::exists(half));
  const auto opened = CheckpointStore(dir_).open_latest();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->state.step, 10);
}

TEST_F(CheckpointTest, PublishesTheModel) {
  const auto path = write(20);
  ASSERT_TRUE(CheckpointStore(dir_).publish(*path).has_value());
  ASSERT_TRUE(CheckpointStore(dir_).publish(*path).has_value());
  EXPECT_EQ(*read_file(dir_ + "/model.safetensors"), *read_file(*path + "/model.safetensors"));
}

TEST_F(CheckpointTest, RefusesAnotherJob) {
  ASSERT_TRUE(write(20).has_value());
  const auto opened = CheckpointStore(dir_).open_latest();
  CheckpointState other = state_;
  EXPECT_TRUE(verify_checkpoint(**opened, other).has_value());
  other.global_batch = 16;
  EXPECT_EQ(verify_checkpoint(**opened, other).error().message,
            dir_ +
                "/checkpoint/step-00000020 belongs to another job: found global batch 8, wanted "
                "16; use another --run-dir, or --resume never to start anew here");
}

// The second rank's host keeps its files.
TEST_F(CheckpointTest, WhatHostsKeepIsNamedUntilItIsHere) {
  const CheckpointStore store(dir_), there(dir_ + "/host");
  ASSERT_TRUE(store.begin(20) && there.begin(20));
  std::vector<WrittenFiles> files = {*write_part(20, 0)};
  ASSERT_TRUE(write_part(20, 1));
  const std::string model = "model-00002-of-00002.safetensors",
                    optimizer = "optimizer-00002-of-00002.safetensors";
  files.push_back(*write_part(20, 1));
  for (const std::string& name : {model, optimizer}) {
    fs::rename(store.half_written(20) + "/" + name, there.half_written(20) + "/" + name);
    files[1].held[name] = {"b", "run/cut/rank-1"};
  }
  const std::string kept = there.keep_part(20).value();
  EXPECT_EQ(fields_from_json<WrittenFiles>(fields_to_json(files[1]), "").value().held,
            files[1].held);
  state_.step = 20;
  state_.samples = 160;
  const std::string folder = store.finish(state_, files).value();
  EXPECT_EQ(held_files(folder).value(), files[1].held);
  EXPECT_EQ(store.open_latest().error().message,
            folder + ": not all of it is here: host b has " + model + ", " + optimizer +
                "; `motley consolidate " + folder + " --hosts` brings it");
  const auto some = open_checkpoint(folder, TensorFiles::Extent::kSome);
  ASSERT_TRUE(some.has_value()) << some.error().message;
  EXPECT_TRUE(some->model.has("w"));
  EXPECT_EQ(settle_held(folder).error().code, "file.missing");
  for (const std::string& name : {model, optimizer})
    fs::copy_file(kept + "/" + name, folder + "/" + name);
  ASSERT_TRUE(settle_held(folder).has_value());
  EXPECT_TRUE(held_files(folder)->empty());
  EXPECT_TRUE(open_checkpoint(folder).has_value());
}

}  // namespace
}  // namespace motley::run
