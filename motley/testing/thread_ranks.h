#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "motley/run/torch/exchange/rendezvous.h"

namespace motley::run {

/// Ranks as threads, each with its own store and groups, as processes have.
class RendezvousTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // as in a worker: a dead peer is an error of a call
    std::string pattern = ::testing::TempDir() + "motley-gloo-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Rendezvous> open(int rank, int size) {
    RendezvousOptions options;
    options.rank = rank;
    options.size = size;
    options.file = dir_ + "/rendezvous";
    options.timeout = Seconds(10);
    auto opened = Rendezvous::open(options);
    EXPECT_TRUE(opened.has_value()) << opened.error().message;
    return std::move(*opened);
  }

  void on_ranks(int size, const std::function<void(Rendezvous&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        const auto rendezvous = open(rank, size);
        body(*rendezvous);
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::string dir_;
};

}  // namespace motley::run
