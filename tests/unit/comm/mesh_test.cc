#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "comm/thread_comm.h"

namespace longspan {
namespace {

MeshShape Resolve(int ranks, const std::string& strategy, int heads, int data = 1, int ring = 0,
                  int ulysses = 0) {
  return ResolveMesh({.ranks = ranks,
                      .strategy = strategy,
                      .data_parallelism = data,
                      .context_parallelism = ring,
                      .ulysses_parallelism = ulysses,
                      .num_attention_heads = heads});
}

std::string Refusal(const MeshRequest& request) {
  try {
    const MeshShape shape = ResolveMesh(request);
    return fmt::format("resolved to {} {} {} {}", shape.data, shape.fsdp, shape.ring, shape.ulysses);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
}

void ExpectContains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST(Mesh, RanksAreNumberedFromTheUlyssesAxisOutwards) {
  const MeshShape shape = {.data = 2, .fsdp = 3, .ring = 5, .ulysses = 4};
  int rank = 0;
  for (int d = 0; d < 2; ++d)
    for (int f = 0; f < 3; ++f)
      for (int r = 0; r < 5; ++r)
        for (int u = 0; u < 4; ++u, ++rank) {
          EXPECT_EQ(RankOf(shape, {d, f, r, u}), rank);
          const MeshCoordinate c = CoordinateOf(shape, rank);
          EXPECT_EQ(std::vector({c.data, c.fsdp, c.ring, c.ulysses}), std::vector({d, f, r, u}));
        }
  EXPECT_EQ(shape.ranks(), 120);
  EXPECT_EQ(shape.context(), 20);
}

TEST(Mesh, DefaultsGiveTheContextAxisWhatIsLeft) {
  for (const char* strategy : {"all_gather", "ring"}) {
    EXPECT_EQ(Resolve(6, strategy, 1), (MeshShape{1, 1, 6, 1}));
    EXPECT_EQ(Resolve(6, strategy, 1, 2), (MeshShape{2, 1, 3, 1}));
    EXPECT_EQ(Resolve(6, strategy, 1, -1, 3), (MeshShape{2, 1, 3, 1}));
    EXPECT_EQ(Resolve(6, strategy, 1, 6), (MeshShape{6, 1, 1, 1}));
    EXPECT_EQ(Resolve(6, strategy, 1, 1, -1, 1), (MeshShape{1, 1, 6, 1}));
  }
  EXPECT_EQ(Resolve(6, "ulysses", 6), (MeshShape{1, 1, 1, 6}));
  EXPECT_EQ(Resolve(6, "ulysses", 8, 2, 1, 3), (MeshShape{2, 1, 1, 3}));
  EXPECT_EQ(Resolve(6, "ulysses", 8, -1, 0, 3), (MeshShape{2, 1, 1, 3}));
}

TEST(Mesh, UspTakesTheLargestDivisorUpToTheSquareRootAndTheHeads) {
  EXPECT_EQ(Resolve(1, "usp", 8), (MeshShape{1, 1, 1, 1}));
  EXPECT_EQ(Resolve(4, "usp", 8), (MeshShape{1, 1, 2, 2}));
  EXPECT_EQ(Resolve(7, "usp", 8), (MeshShape{1, 1, 7, 1}));
  EXPECT_EQ(Resolve(8, "usp", 8), (MeshShape{1, 1, 4, 2}));
  EXPECT_EQ(Resolve(9, "usp", 8), (MeshShape{1, 1, 3, 3}));
  EXPECT_EQ(Resolve(9, "usp", 2), (MeshShape{1, 1, 9, 1}));
  EXPECT_EQ(Resolve(36, "usp", 5), (MeshShape{1, 1, 9, 4}));
  EXPECT_EQ(Resolve(72, "usp", 8, 2), (MeshShape{2, 1, 6, 6}));
  EXPECT_EQ(Resolve(16, "usp", 8, 1, -1), (MeshShape{1, 1, 4, 4}));
}

TEST(Mesh, UspTakesAnySizesThatAreGiven) {
  EXPECT_EQ(Resolve(15, "usp", 8, 1, 5, 3), (MeshShape{1, 1, 5, 3}));
  EXPECT_EQ(Resolve(15, "usp", 8, 1, 3), (MeshShape{1, 1, 3, 5}));
  EXPECT_EQ(Resolve(15, "usp", 8, 1, 0, 5), (MeshShape{1, 1, 3, 5}));
  EXPECT_EQ(Resolve(8, "usp", 8, 1, 1, 8), (MeshShape{1, 1, 1, 8}));
  EXPECT_EQ(Resolve(8, "usp", 1, 1, 8, 1), (MeshShape{1, 1, 8, 1}));
  EXPECT_EQ(Resolve(12, "usp", 8, -1, 3, 2), (MeshShape{2, 1, 3, 2}));
}

TEST(Mesh, ShardingAddsAnAxis) {
  MeshRequest request = {.ranks = 8, .fsdp_parallelism = 2, .shard_parameters = true};
  EXPECT_EQ(ResolveMesh(request), (MeshShape{1, 2, 4, 1}));
  request.shard_parameters = false;
  ExpectContains(Refusal(request),
                 {"fsdp_parallelism 2", "shard_parameters=true", "largest that works without is 1"});
  request.fsdp_parallelism = -1;
  ExpectContains(Refusal(request), {"fsdp_parallelism -1", "shard_parameters=true"});
}

TEST(Mesh, MoreUlyssesRanksThanHeadsAreRefused) {
  ExpectContains(Refusal({.ranks = 16, .strategy = "ulysses", .num_attention_heads = 12}),
                 {"ulysses_parallelism 16 exceeds num_attention_heads 12; the largest that works is 12",
                  "context_parallel_strategy=usp ulysses_parallelism=8"});
  EXPECT_EQ(Refusal({.ranks = 24, .strategy = "usp", .ulysses_parallelism = 24, .num_attention_heads = 12}),
            "ulysses_parallelism 24 exceeds num_attention_heads 12; the largest that works is 12");
  EXPECT_EQ(Resolve(12, "ulysses", 12).ulysses, 12);
}

TEST(Mesh, RefusalsNameTheKeyAndWhatWorks) {
  ExpectContains(Refusal({.ranks = 0}), {"ranks is 0"});
  ExpectContains(Refusal({.ranks = 8, .data_parallelism = 3}),
                 {"data_parallelism 3 does not divide the 8 ranks; the largest that works is 2"});
  ExpectContains(Refusal({.ranks = 8, .data_parallelism = 16}),
                 {"data_parallelism 16", "largest that works is 8"});
  ExpectContains(Refusal({.ranks = 12, .data_parallelism = 2, .context_parallelism = 4}),
                 {"context_parallelism 4 does not divide the 6 ranks that are left of 12", "works is 3"});
  ExpectContains(Refusal({.ranks = 8, .context_parallelism = 2}),
                 {"differs from ranks 8", "the context_parallelism that works is 8"});
  ExpectContains(
      Refusal({.ranks = 8, .strategy = "ulysses", .ulysses_parallelism = 2, .num_attention_heads = 8}),
      {"differs from ranks 8", "the ulysses_parallelism that works is 8"});
  ExpectContains(Refusal({.ranks = 12,
                          .strategy = "usp",
                          .context_parallelism = 2,
                          .ulysses_parallelism = 3,
                          .num_attention_heads = 8}),
                 {"= 6 differs from ranks 12", "the context_parallelism that works is 4"});
  ExpectContains(Refusal({.ranks = 4, .ulysses_parallelism = 2}),
                 {"ulysses_parallelism 2", "context_parallel_strategy ring", "largest that works is 1"});
  ExpectContains(
      Refusal({.ranks = 4, .strategy = "ulysses", .context_parallelism = 2, .num_attention_heads = 8}),
      {"context_parallelism 2", "context_parallel_strategy ulysses", "largest that works is 1"});
  ExpectContains(Refusal({.ranks = 4, .data_parallelism = -2}), {"data_parallelism is -2", "at least 1"});
  ExpectContains(Refusal({.ranks = 4, .data_parallelism = 0}), {"data_parallelism is 0"});
  ExpectContains(Refusal({.ranks = 4, .context_parallelism = -3}), {"context_parallelism is -3"});
}

TEST(Mesh, OnlyOneAxisMayBeWhatIsLeft) {
  ExpectContains(
      Refusal({.ranks = 4, .data_parallelism = -1}),
      {"data_parallelism and context_parallelism are both -1", "give context_parallelism a number"});
  ExpectContains(
      Refusal({.ranks = 4, .strategy = "usp", .context_parallelism = -1, .ulysses_parallelism = -1}),
      {"context_parallelism and ulysses_parallelism are both -1"});
  ExpectContains(Refusal({.ranks = 4, .strategy = "usp", .data_parallelism = -1, .context_parallelism = 2}),
                 {"data_parallelism and ulysses_parallelism are both -1"});
}

TEST(Mesh, CommunicatorsJoinTheRanksOfAnAxis) {
  const MeshShape shape = {.data = 2, .fsdp = 2, .ring = 2, .ulysses = 3};
  RunThreadRanks(shape.ranks(), [&](Comm& world) {
    const Mesh mesh = MakeMesh(shape, world);
    EXPECT_EQ(mesh.world, &world);
    const int base = world.rank() / 6 * 6;
    EXPECT_EQ(mesh.context->rank(), world.rank() - base);
    EXPECT_EQ(mesh.ring->rank(), mesh.at.ring);
    EXPECT_EQ(mesh.ulysses->rank(), mesh.at.ulysses);
    const auto members = [&](Comm& comm) {
      int32_t mine = world.rank();
      std::vector<int32_t> all(static_cast<size_t>(comm.size()));
      comm.AllGather(Tensor(&mine, DType::kInt32, {1}), Tensor(all.data(), DType::kInt32, {comm.size()}))
          .Wait();
      return all;
    };
    const int r = mesh.at.ring, u = mesh.at.ulysses;
    EXPECT_EQ(members(*mesh.context), (std::vector{base, base + 1, base + 2, base + 3, base + 4, base + 5}));
    EXPECT_EQ(members(*mesh.ring), (std::vector{base + u, base + 3 + u}));
    EXPECT_EQ(members(*mesh.ulysses), (std::vector{base + 3 * r, base + 3 * r + 1, base + 3 * r + 2}));
    EXPECT_EQ(mesh.group(), world.rank() / 6);
    std::vector<int32_t> shards(12);
    std::iota(shards.begin(), shards.end(), world.rank() / 12 * 12);
    EXPECT_EQ(members(*mesh.shards), shards);
    EXPECT_EQ(members(*mesh.replicas), (std::vector{world.rank() % 12, world.rank() % 12 + 12}));
    EXPECT_EQ(members(*mesh.self), std::vector{world.rank()});
  });
}

}  // namespace
}  // namespace longspan
