// What the backend's tests share: the targets that run here, guarded tensors, comparison with a reference.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "core/tensor.h"

namespace longspan::test {

using cpu::CpuTarget;

// libgomp is not instrumented: under the thread sanitizer every region of several threads looks like a race.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kMostThreads = 1;
#else
inline constexpr int kMostThreads = 3;
#endif

// All, or those up to the one that is forced: LONGSPAN_CPU_TARGET=scalar keeps the tests from oneDNN, too.
inline std::vector<CpuTarget> TargetsHere() {
  const bool is_forced = std::getenv("LONGSPAN_CPU_TARGET") != nullptr;
  std::vector<CpuTarget> targets;
  for (const CpuTarget target : cpu::AllTargets()) {
    if (!cpu::Runs(cpu::DetectCpu(), target)) continue;
    if (!is_forced || target <= cpu::ChooseTarget()) targets.push_back(target);
  }
  return targets;
}

// A value as a tensor of this dtype holds it.
inline double Rounded(double x, DType dtype) {
  const float f = static_cast<float>(x);
  return dtype == DType::kBFloat16 ? static_cast<double>(static_cast<float>(BFloat16(f)))
                                   : static_cast<double>(f);
}

// A tensor on a boundary of 128 bytes whose surroundings are full of NaN (every byte 0xff), and are looked at
// in the end. New elements are NaN too.
class Guarded {
 public:
  Guarded(DType dtype, std::initializer_list<int64_t> shape) : tensor_(nullptr, dtype, shape) {
    memory_.assign(static_cast<size_t>(tensor_.num_bytes()) + 2 * kGuard + kAlignment, 0xff);
    void* data = memory_.data() + kGuard;
    size_t space = memory_.size() - kGuard;
    std::align(kAlignment, static_cast<size_t>(tensor_.num_bytes()), data, space);
    tensor_ = Tensor(data, dtype, shape);
  }
  Guarded(DType dtype, std::initializer_list<int64_t> shape, const std::vector<double>& values)
      : Guarded(dtype, shape) {
    Set(values);
  }
  ~Guarded() {
    const auto *begin = static_cast<const unsigned char*>(tensor_.raw()), *end = begin + tensor_.num_bytes();
    for (size_t i = 0; i < kGuard; ++i) {
      const bool intact = *(begin - 1 - i) == 0xff && end[i] == 0xff;
      EXPECT_TRUE(intact) << "written outside the tensor";
      if (!intact) return;
    }
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  operator Tensor() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

  void Set(const std::vector<double>& values) {
    ASSERT_EQ(static_cast<int64_t>(values.size()), tensor_.num_elements());
    for (size_t i = 0; i < values.size(); ++i) {
      const float x = static_cast<float>(values[i]);
      if (tensor_.dtype() == DType::kFloat32) tensor_.data<float>()[i] = x;
      if (tensor_.dtype() == DType::kBFloat16) tensor_.data<BFloat16>()[i] = BFloat16(x);
      if (tensor_.dtype() == DType::kInt32) tensor_.data<int32_t>()[i] = static_cast<int32_t>(values[i]);
      if (tensor_.dtype() == DType::kInt64) tensor_.data<int64_t>()[i] = static_cast<int64_t>(values[i]);
    }
  }
  std::vector<double> Get() const {
    std::vector<double> values(static_cast<size_t>(tensor_.num_elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(tensor_.dtype() == DType::kFloat32
                                          ? tensor_.data<float>()[i]
                                          : static_cast<float>(tensor_.data<BFloat16>()[i]));
    }
    return values;
  }

 private:
  static constexpr size_t kGuard = 256, kAlignment = 128;
  std::vector<unsigned char> memory_;
  Tensor tensor_;
};

inline std::vector<double> Random(std::mt19937_64& random, size_t n, DType dtype, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(n);
  for (double& x : values) x = Rounded(normal(random), dtype);
  return values;
}

// Largest difference allowed, relative to the element and, for sums that cancel, to the root mean square of
// all. bf16 outputs: half a unit in the last of 8 bits. f32: a few units, as sums are reordered.
inline double ToleranceOf(DType dtype) { return dtype == DType::kBFloat16 ? 1.0 / 256 : 2e-6; }

inline void ExpectClose(const std::vector<double>& got, const std::vector<double>& want, DType dtype,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double squares = 0;
  for (const double x : want) squares += x * x;
  const double rms = want.empty() ? 0 : std::sqrt(squares / static_cast<double>(want.size()));
  size_t worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double allowed = ToleranceOf(dtype) * std::abs(want[i]) + 2e-6 * rms;
    const double excess = std::abs(got[i] - want[i]) / (allowed + 1e-30);
    if (!(excess <= worst_excess)) {  // NaN counts as worst
      worst = i;
      worst_excess = excess;
    }
  }
  EXPECT_LE(worst_excess, 1) << what << "[" << worst << "] is " << got[worst] << ", expected " << want[worst];
}

// Virtual memory that reads as zeros and takes no space until it is written.
class Untouched {
 public:
  explicit Untouched(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Untouched() { munmap(data_, bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

// A long array that repeats one piece of physical memory: big sizes at no cost in memory.
class Repeated {
 public:
  Repeated(const std::vector<float>& piece, int64_t times);
  ~Repeated() { munmap(data_, bytes_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

inline Repeated::Repeated(const std::vector<float>& piece, int64_t times) {
  const size_t size = piece.size() * sizeof(float);  // a multiple of the page size
  bytes_ = size * static_cast<size_t>(times);
  const int file = memfd_create("repeated", 0);
  if (file < 0 || write(file, piece.data(), size) != static_cast<ssize_t>(size)) throw std::bad_alloc();
  data_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int64_t i = 0; i < times; ++i) {
    void* at = static_cast<char*>(data_) + static_cast<size_t>(i) * size;
    if (mmap(at, size, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != at) throw std::bad_alloc();
  }
  close(file);
}

// Tests over every target that runs here × f32, bf16.
class TargetTest : public ::testing::TestWithParam<std::tuple<CpuTarget, DType>> {
 protected:
  CpuTarget target() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  std::unique_ptr<Backend> Make(int num_threads) const {
    return cpu::MakeCpuBackend(target(), std::min(num_threads, kMostThreads));
  }
  std::unique_ptr<Backend> MakeDry(int num_threads) const {
    return cpu::MakeDryBackend(target(), std::min(num_threads, kMostThreads));
  }
  std::mt19937_64 random_{20240607};
};

inline std::string ParamName(const ::testing::TestParamInfo<std::tuple<CpuTarget, DType>>& info) {
  return std::string(Name(std::get<0>(info.param))) + "_" + Name(std::get<1>(info.param));
}

#define LONGSPAN_FOR_TARGETS(suite)                                                                  \
  INSTANTIATE_TEST_SUITE_P(Targets, suite,                                                           \
                           ::testing::Combine(::testing::ValuesIn(TargetsHere()),                    \
                                              ::testing::Values(DType::kFloat32, DType::kBFloat16)), \
                           ParamName)

}  // namespace longspan::test
