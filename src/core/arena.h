// Arena: the memory of a step. Allocation is a pointer bump, release is the end of a Scope, nothing is freed.
//
// An arena reserves address space, not memory: pages are committed as the high mark grows, and stay. So after
// the first step no allocation reaches the system. In measure mode nothing is ever committed; the tensors may
// be passed around and measured but not touched: this is how a dry run learns what a real one will need.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace longspan {

class Arena {
 public:
  enum class Mode { kReal, kMeasure };

  // Room for `capacity` bytes of allocations, which are rounded up (AllocationBytes); 0: for as much as the
  // machine has memory, or as the process may address. Throws Error(kResource).
  explicit Arena(Mode mode = Mode::kReal, int64_t capacity = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialised, 64-byte aligned; lives until the innermost open Scope ends. `name` is what the memory
  // report calls it. Throws Error(kResource) when the system has no more.
  Tensor Allocate(std::string_view name, DType dtype, std::span<const int64_t> shape);
  Tensor Allocate(std::string_view name, DType dtype, std::initializer_list<int64_t> shape) {
    return Allocate(name, dtype, std::span<const int64_t>(shape.begin(), shape.size()));
  }

  // From here on at most so many bytes are alive at once: what other tensors leave of a device. Where an
  // allocation would be one too many, it throws Error(kResource).
  void Limit(int64_t bytes);

  // What an allocation of so many bytes takes.
  static int64_t AllocationBytes(int64_t bytes);

  // Everything allocated inside a Scope is released when it ends. Scopes nest.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), used_(arena.used_), live_(arena.live_.size()) {}
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    int64_t used_;
    size_t live_;
  };

  int64_t used_bytes() const { return used_; }
  int64_t peak_bytes() const { return peak_; }
  // Forgets the high mark: from here on it is that of what is alive now and what follows. Gives nothing back.
  void ResetPeak();
  // What was alive at the high mark, bytes by name.
  const std::map<std::string, int64_t, std::less<>>& peak_by_name() const;

 private:
  struct Allocation {
    std::string_view name;  // of static storage: a string literal
    int64_t bytes;
  };
  void Commit(int64_t end);

  Mode mode_;
  char* base_ = nullptr;
  int64_t reserved_ = 0, limit_ = 0, committed_ = 0, used_ = 0, peak_ = 0;
  std::vector<Allocation> live_, peak_live_;
  mutable std::map<std::string, int64_t, std::less<>> peak_by_name_;
};

}  // namespace longspan
