// The mesh of ranks: rank = ((d·F + f)·R + r)·U + u.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace longspan {

// Axis sizes; data · fsdp · ring · ulysses = ranks.
struct MeshShape {
  int data = 1, fsdp = 1, ring = 1, ulysses = 1;
  int ranks() const { return data * fsdp * ring * ulysses; }
  int context() const { return ring * ulysses; }
  int groups() const { return data * fsdp; }  // of ranks, each with sequences of its own
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

struct MeshCoordinate {
  int data = 0, fsdp = 0, ring = 0, ulysses = 0;
};
MeshCoordinate CoordinateOf(const MeshShape& shape, int rank);
int RankOf(const MeshShape& shape, const MeshCoordinate& c);

// What the configuration asks for; −1 means "what is left", at most one of them.
struct MeshRequest {
  int ranks = 1;
  std::string strategy = "ring";  // context_parallel_strategy; decides the defaults of R and U
  int data_parallelism = 1, fsdp_parallelism = 1;
  int context_parallelism = 0;  // R; 0: the strategy's default
  int ulysses_parallelism = 0;  // U; 0: the strategy's default
  bool shard_parameters = false;
  int num_attention_heads = 1;
};
// Applies the defaults: all_gather, ring: R = −1, U = 1, else refused. ulysses: R = 1, U = −1. usp: U = the
// largest divisor of what is left that is at most its square root and at most H, R = −1. Throws Error(kUsage)
// naming the key, what it got, and the largest value that works.
MeshShape ResolveMesh(const MeshRequest& request);

// One rank's place in the mesh and its communicators. Made once; collective.
struct Mesh {
  MeshShape shape;
  MeshCoordinate at;
  Comm* world = nullptr;
  std::unique_ptr<Comm> context;   // the R·U ranks that share my sequence
  std::unique_ptr<Comm> ring;      // the R ranks of my u
  std::unique_ptr<Comm> ulysses;   // the U ranks of my r
  std::unique_ptr<Comm> self;      // this rank alone
  std::unique_ptr<Comm> shards;    // the F·R·U ranks of my d, over which weights may be sharded
  std::unique_ptr<Comm> replicas;  // the N ranks of my f, r and u, which then have equal shards

  int group() const { return at.data * shape.fsdp + at.fsdp; }  // mine, of shape.groups()
};
Mesh MakeMesh(const MeshShape& shape, Comm& world);

}  // namespace longspan
