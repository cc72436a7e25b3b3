#include "comm/mesh.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

namespace longspan {
namespace {

constexpr int kRest = -1;  // what is left

// A key of the configuration with its size.
struct Axis {
  std::string_view key;
  int size;
};

int LargestDivisor(int n, int limit) {
  for (int d = std::min(n, limit); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

// The largest divisor of n that is at most √n and at most `limit`.
int InnerDivisor(int n, int limit) {
  int root = 1;
  while (int64_t{root + 1} * (root + 1) <= n) ++root;
  return LargestDivisor(n, std::min(root, limit));
}

void RequireFixed(const Axis& axis, std::string_view strategy, std::string_view its_axis) {
  Require(ExitCode::kUsage, axis.size == 0 || axis.size == 1,
          "{} {} does not go with context_parallel_strategy {}, which splits by {}; the largest that works "
          "is 1 (usp "
          "splits by both)",
          axis.key, axis.size, strategy, its_axis);
}

// Takes the axes with a size out of `ranks`; returns what is left for the one that has none.
int TakeFrom(int ranks, std::span<const Axis> axes) {
  int left = ranks;
  for (const Axis& axis : axes) {
    if (axis.size == kRest) continue;
    Require(ExitCode::kUsage, left % axis.size == 0,
            "{} {} does not divide the {} ranks{}; the largest that works is {}", axis.key, axis.size, left,
            left == ranks ? "" : fmt::format(" that are left of {}", ranks), LargestDivisor(left, axis.size));
    left /= axis.size;
  }
  return left;
}

void RequireHeads(const MeshShape& shape, int heads) {
  if (shape.ulysses <= heads) return;
  std::string message =
      fmt::format("ulysses_parallelism {} exceeds num_attention_heads {}; the largest that works is {}",
                  shape.ulysses, heads, heads);
  // Where the heads are no divisor, say what works for so many ranks.
  const int works = LargestDivisor(shape.context(), heads);
  if (works != heads)
    message +=
        fmt::format(" (the {} ranks of a sequence: context_parallel_strategy=usp ulysses_parallelism={})",
                    shape.context(), works);
  throw Error(message, ExitCode::kUsage);
}

}  // namespace

MeshCoordinate CoordinateOf(const MeshShape& shape, int rank) {
  CHECK(rank >= 0 && rank < shape.ranks());
  MeshCoordinate c;
  c.ulysses = rank % shape.ulysses;
  rank /= shape.ulysses;
  c.ring = rank % shape.ring;
  rank /= shape.ring;
  c.fsdp = rank % shape.fsdp;
  c.data = rank / shape.fsdp;
  return c;
}

int RankOf(const MeshShape& shape, const MeshCoordinate& c) {
  return ((c.data * shape.fsdp + c.fsdp) * shape.ring + c.ring) * shape.ulysses + c.ulysses;
}

MeshShape ResolveMesh(const MeshRequest& request) {
  const std::string& strategy = request.strategy;
  Require(ExitCode::kUsage, request.ranks >= 1, "ranks is {}, but at least 1 is needed", request.ranks);
  Require(ExitCode::kUsage, request.fsdp_parallelism == 1 || request.shard_parameters,
          "fsdp_parallelism {} needs shard_parameters=true; the largest that works without is 1",
          request.fsdp_parallelism);

  Axis data = {"data_parallelism", request.data_parallelism},
       fsdp = {"fsdp_parallelism", request.fsdp_parallelism},
       ring = {"context_parallelism", request.context_parallelism},
       ulysses = {"ulysses_parallelism", request.ulysses_parallelism};
  for (const Axis& axis : {data, fsdp, ring, ulysses}) {
    const bool has_default = axis.key == ring.key || axis.key == ulysses.key;
    Require(ExitCode::kUsage, axis.size >= 1 || axis.size == kRest || (axis.size == 0 && has_default),
            "{} is {}, but must be at least 1, or -1 for what is left", axis.key, axis.size);
  }

  // The strategy's defaults. Those that are neither Ulysses nor USP split by the ring axis alone.
  bool inner_by_rule = false;  // usp's U, which depends on what is left
  if (strategy == "ulysses") {
    RequireFixed(ring, strategy, ulysses.key);
    ring.size = 1;
    if (ulysses.size == 0) ulysses.size = kRest;
  } else if (strategy == "usp") {
    inner_by_rule = ulysses.size == 0 && ring.size <= 0;
    if (ulysses.size == 0) ulysses.size = inner_by_rule ? 1 : kRest;
    if (ring.size == 0) ring.size = kRest;
  } else {
    RequireFixed(ulysses, strategy, ring.key);
    ulysses.size = 1;
    if (ring.size == 0) ring.size = kRest;
  }

  const std::array<Axis*, 4> axes = {&data, &fsdp, &ring, &ulysses};
  std::vector<std::string_view> open;
  for (const Axis* axis : axes)
    if (axis->size == kRest) open.push_back(axis->key);
  if (open.size() > 1)
    throw Error(fmt::format("{} and {} are both -1 (what is left), which only one may be; give {} a number",
                            open[0], open[1], open[1]),
                ExitCode::kUsage);

  const int left = TakeFrom(request.ranks, std::array{data, fsdp, ring, ulysses});
  if (inner_by_rule) ulysses.size = InnerDivisor(left, request.num_attention_heads);
  for (Axis* axis : axes)
    if (axis->size == kRest) axis->size = inner_by_rule ? left / ulysses.size : left;
  const MeshShape shape = {data.size, fsdp.size, ring.size, ulysses.size};
  if (shape.ranks() != request.ranks) {
    const Axis& last = strategy == "ulysses" ? ulysses : ring;
    throw Error(
        fmt::format("{} {} · {} {} · {} {} · {} {} = {} differs from ranks {}; the {} that works is {}",
                    data.key, data.size, fsdp.key, fsdp.size, ring.key, ring.size, ulysses.key, ulysses.size,
                    shape.ranks(), request.ranks, last.key, last.size * left),
        ExitCode::kUsage);
  }

  RequireHeads(shape, request.num_attention_heads);
  return shape;
}

Mesh MakeMesh(const MeshShape& shape, Comm& world) {
  CHECK(world.size() == shape.ranks());
  const MeshCoordinate at = CoordinateOf(shape, world.rank());
  std::vector<int> context, ring, ulysses, shards, replicas;
  for (int r = 0; r < shape.ring; ++r) {
    for (int u = 0; u < shape.ulysses; ++u) {
      const int rank = RankOf(shape, {at.data, at.fsdp, r, u});
      context.push_back(rank);
      if (u == at.ulysses) ring.push_back(rank);
      if (r == at.ring) ulysses.push_back(rank);
    }
  }
  const int num_shards = shape.fsdp * shape.context(), shard = world.rank() % num_shards;
  for (int s = 0; s < num_shards; ++s) shards.push_back(world.rank() - shard + s);
  for (int d = 0; d < shape.data; ++d) replicas.push_back(d * num_shards + shard);
  const std::array<int, 1> self = {world.rank()};
  return {shape,
          at,
          &world,
          world.Subgroup(context),
          world.Subgroup(ring),
          world.Subgroup(ulysses),
          world.Subgroup(self),
          world.Subgroup(shards),
          world.Subgroup(replicas)};
}

}  // namespace longspan
