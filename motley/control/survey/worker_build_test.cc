#include "motley/control/survey/worker_build.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "motley/base/file.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

TEST(WorkerBuild, IsSaidBesideTheWorker) {
  const TemporaryDirectory temporary;
  const std::string worker = worker_of(temporary.file("motley"));
  EXPECT_EQ(worker, temporary.file("motley-worker"));
  EXPECT_EQ(read_worker_build(worker).torch, "");
  EXPECT_NE(read_worker_build(worker).cuda_left_out, "");
  const auto write = [&](const char* text) {
    ASSERT_TRUE(write_file_atomic(worker + ".json", text));
  };
  write(R"({"torch": "2.15.0", "folder": "../../torch", "cuda_left_out": "no CUDA"})");
  EXPECT_EQ(read_worker_build(worker).torch, "2.15.0");
  EXPECT_EQ(read_worker_build(worker).folder.find(".."), std::string::npos);
  EXPECT_EQ(read_worker_build(worker).cuda_left_out, "no CUDA");
  write(R"({"torch": "2.15.0", "folder": "/opt/torch", "cuda_left_out": ""})");
  EXPECT_EQ(read_worker_build(worker).folder, "/opt/torch");
  const std::string link = temporary.file("link");
  ASSERT_TRUE(write_file_atomic(worker, "#!/bin/sh\n"));
  std::filesystem::create_symlink(worker, link);
  EXPECT_EQ(read_worker_build(link).folder, "/opt/torch");
  write("{");
  EXPECT_EQ(read_worker_build(worker).torch, "");
}

}  // namespace
}  // namespace motley::control
