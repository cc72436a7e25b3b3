#include "train/tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "core/work_log.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

constexpr int64_t kBlock = ScratchFile::kAlignment;

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Tensors as tiers want them.
class Tensors {
 public:
  Tensor Make(int64_t bytes, int value) {
    const int64_t blocks = (bytes + kBlock - 1) / kBlock;
    const Tensor memory = arena_.Allocate("tensors", DType::kByte, {blocks * kBlock});
    std::memset(memory.raw(), value, static_cast<size_t>(memory.num_bytes()));
    return Tensor(memory.raw(), DType::kByte, {bytes});
  }

 private:
  Arena arena_{Arena::Mode::kReal, 64 * kBlock};
};

bool Holds(Tensor tensor, int value) {
  const uint8_t* bytes = tensor.data<uint8_t>();
  return std::all_of(bytes, bytes + tensor.num_bytes(), [&](uint8_t x) { return x == value; });
}

// With these slots, and room for them.
std::unique_ptr<Tier> MakeTier(const std::vector<TierSlot>& slots, const std::string& directory,
                               Background* background, const IoHooks& hooks = {},
                               WorkRecorder* recorder = nullptr, bool shares_host_memory = false) {
  auto tier = std::make_unique<Tier>(directory, background, hooks, recorder, shares_host_memory);
  EXPECT_EQ(tier->Add(slots), 0);
  tier->Reserve();
  return tier;
}

class AnyTier : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Tier> Make(const std::vector<TierSlot>& slots, Background& background,
                             const IoHooks& hooks = {}) {
    return MakeTier(slots, GetParam() ? directory_.path() : "", &background, hooks);
  }
  testing::TemporaryDirectory directory_;
  Tensors tensors_;
};
INSTANTIATE_TEST_SUITE_P(Where, AnyTier, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "Disk" : "HostMemory"; });

TEST_P(AnyTier, GivesBackWhatASlotHolds) {
  Background background;
  const auto tier = Make({{"a", 100}, {"b", 3 * kBlock + 1}, {"a", kBlock}}, background);
  const int64_t sizes[] = {100, 3 * kBlock + 1, kBlock - 5};
  for (int round = 0; round < 2; ++round) {
    for (int slot = 0; slot < 3; ++slot)
      tier->Write(slot, tensors_.Make(sizes[slot], 10 * round + slot + 1)).Wait();
    for (const int slot : {2, 0, 1, 1}) {
      const Tensor got = tensors_.Make(sizes[slot], 0);
      tier->Read(slot, got).Wait();
      EXPECT_TRUE(Holds(got, 10 * round + slot + 1)) << slot;
    }
  }
  EXPECT_EQ(tier->bytes_written(), 2 * 6 * kBlock);
  EXPECT_EQ(tier->bytes_read(), 2 * (6 + 4) * kBlock);
  const std::map<std::string, int64_t> bytes = {{"a", 2 * kBlock}, {"b", 4 * kBlock}};
  EXPECT_EQ(tier->BytesByName(), bytes);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

// However slow they are, transfers of a slot happen in the order in which they were asked for, and none
// before what it is after.
TEST_P(AnyTier, OrderIsByEvents) {
  Background background([] { Sleep(3); });
  const auto tier = Make({{"a", kBlock}}, background);
  const Tensor first = tensors_.Make(kBlock, 1), second = tensors_.Make(kBlock, 2);
  const Tensor got = tensors_.Make(kBlock, 0), again = tensors_.Make(kBlock, 0);
  EventSource gate;
  const Event written = tier->Write(0, first, gate.event());
  const Event read = tier->Read(0, got);
  const Event overwritten = tier->Write(0, second);
  const Event reread = tier->Read(0, again);
  Sleep(10);
  EXPECT_FALSE(written.Done() || read.Done() || overwritten.Done() || reread.Done());
  EXPECT_TRUE(Holds(got, 0));
  gate.Set();
  reread.Wait();
  EXPECT_TRUE(written.Done() && read.Done() && overwritten.Done());
  EXPECT_TRUE(Holds(got, 1));
  EXPECT_TRUE(Holds(again, 2));
}

// Its owner's tensors go after it.
TEST_P(AnyTier, ItsEndWaitsForWhatIsUnderWay) {
  std::atomic<int> begun = 0;
  Background background([&] { Sleep(5), ++begun; });
  auto tier = Make({{"a", kBlock}, {"b", kBlock}}, background);
  const Tensor tensor = tensors_.Make(kBlock, 1), other = tensors_.Make(kBlock, 0);
  tier->Write(0, tensor);
  tier->Write(1, tensor);
  tier->Read(1, other);
  tier.reset();
  EXPECT_EQ(begun, 3);
  EXPECT_TRUE(Holds(other, 1));
}

TEST_P(AnyTier, RefusesWhatDoesNotFitOrWasNotWritten) {
  Background background;
  const auto tier = Make({{"a", 100}, {"b", 100}}, background);
  EXPECT_THROW(tier->Write(0, tensors_.Make(kBlock + 1, 0)), std::logic_error);
  EXPECT_THROW(tier->Write(2, tensors_.Make(100, 0)), std::logic_error);
  EXPECT_THROW(tier->Write(-1, tensors_.Make(100, 0)), std::logic_error);
  EXPECT_THROW(tier->Read(0, tensors_.Make(100, 0)), std::logic_error);
  const Tensor tensor = tensors_.Make(kBlock, 0);
  EXPECT_THROW(tier->Write(0, tensor.Rows(64, 128)), std::logic_error);  // not aligned
}

TEST_P(AnyTier, SomeSlotsStartAsZero) {
  Background background;
  const auto tier = Make({{"a", 100}, {"b", 2 * kBlock, /*starts_as_zero=*/true}}, background);
  const Tensor tensor = tensors_.Make(2 * kBlock - 10, 7), got = tensors_.Make(2 * kBlock - 10, 7);
  tier->Read(1, got).Wait();
  EXPECT_TRUE(Holds(got, 0));
  tier->Write(1, tensor);
  tier->Read(1, got).Wait();
  EXPECT_TRUE(Holds(got, 7));
}

// Each owner adds its own.
TEST_P(AnyTier, HoldsTheSlotsOfAll) {
  Background background;
  Tier tier(GetParam() ? directory_.path() : "", &background);
  const int a = tier.Add({{"a", kBlock}, {"a", kBlock}}), none = tier.Add({}), b = tier.Add({{"b", kBlock}});
  EXPECT_EQ(a, 0);
  EXPECT_EQ(none, 2);
  EXPECT_EQ(b, 2);
  const Tensor got = tensors_.Make(kBlock, 0);
  EXPECT_THROW(tier.Write(a, got), std::logic_error);
  tier.Reserve();
  for (const int slot : {a, a + 1, b}) tier.Write(slot, tensors_.Make(kBlock, slot + 1));
  for (const int slot : {b, a + 1, a}) {
    tier.Read(slot, got).Wait();
    EXPECT_TRUE(Holds(got, slot + 1));
  }
  EXPECT_EQ(tier.BytesByName().at("a"), 2 * kBlock);
  EXPECT_THROW(tier.Add({{"c", kBlock}}), std::logic_error);
}

TEST(Tier, ADryOneCountsTheSameAndTakesNothing) {
  const int64_t huge = int64_t{1} << 50;
  const auto tier = MakeTier({{"a", huge}, {"a", 1}}, "/nowhere", /*background=*/nullptr);
  EXPECT_TRUE(tier->dry());
  Arena arena(Arena::Mode::kMeasure);
  const Tensor tensor = arena.Allocate("a", DType::kByte, {huge});
  tier->Write(0, tensor).Wait();
  tier->Read(0, tensor).Wait();
  EXPECT_EQ(tier->bytes_written(), huge);
  EXPECT_EQ(tier->bytes_read(), huge);
  EXPECT_EQ(tier->BytesByName().at("a"), huge + kBlock);
}

TEST(Tier, OneWithoutSlotsNeedsNeitherMemoryNorDisk) {
  Background background;
  EXPECT_TRUE(MakeTier({}, "/nowhere", &background)->BytesByName().empty());
}

// A disk that is full later on, although its room was reserved.
class FullCalls final : public FileCalls {
 public:
  mutable std::atomic<bool> full = false;
  ssize_t Write(int fd, const void* data, size_t bytes, int64_t offset) const override {
    if (full) return errno = ENOSPC, -1;
    return FileCalls::Write(fd, data, bytes, offset);
  }
};

TEST(Tier, WhatFailedToBeWrittenIsNeverRead) {
  const testing::TemporaryDirectory directory;
  Background background;
  FullCalls calls;
  IoHooks hooks;
  hooks.file_calls = &calls;
  const auto tier = MakeTier({{"a", kBlock}, {"b", kBlock}}, directory.path(), &background, hooks);
  Tensors tensors;
  const Tensor one = tensors.Make(kBlock, 1), two = tensors.Make(kBlock, 2), got = tensors.Make(kBlock, 0);
  tier->Write(0, one).Wait();
  tier->Write(1, one).Wait();
  calls.full = true;
  const Event failing = tier->Write(0, two);
  const auto is_full = [&](const Event& event) {
    testing::ExpectError(
        {"cannot write 4096 bytes at 0", directory.path(), "No space left"}, [&] { event.Wait(); },
        ExitCode::kResource);
  };
  is_full(failing);
  calls.full = false;
  is_full(tier->Read(0, got));
  is_full(tier->Write(0, one));
  EXPECT_TRUE(Holds(got, 0));
  tier->Read(1, got).Wait();  // the other slot is as it was
  EXPECT_TRUE(Holds(got, 1));
}

TEST(Tier, SaysAtTheStartThatTheDiskIsFull) {
  const testing::TemporaryDirectory directory;
  Background background;
  testing::ExpectError(
      {directory.path(), "no room for", "offload_directory"},
      [&] {
        MakeTier({{"a", int64_t{1} << 60}}, directory.path(), &background);
      },
      ExitCode::kResource);
}

// A dry tier says what it would move, over which lanes, and what comes after what.
TEST(Tier, ADryOneReportsItsTransfers) {
  alignas(ScratchFile::kAlignment) static char data[64];
  const Tensor tensor(data, DType::kByte, {64});
  WorkLog log;
  const auto host = MakeTier({{"a", 64}}, "", nullptr, {}, &log),
             disk = MakeTier({{"b", 64}}, "/nowhere", nullptr, {}, &log);
  const Event written = host->Write(0, tensor);
  const Event read = host->Read(0, tensor);
  disk->Write(0, tensor, read);
  disk->Read(0, tensor);
  const auto entries = log.entries();
  ASSERT_EQ(entries.size(), 6u);
  const WorkKind kinds[] = {WorkKind::kToHost, WorkKind::kFromHost, WorkKind::kToHost,
                            WorkKind::kToDisk, WorkKind::kFromDisk, WorkKind::kFromHost};
  const int64_t after[] = {0, written.work(), read.work(), 3, 4, 5};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(entries[i].work.kind, kinds[i]) << i;
    EXPECT_EQ(entries[i].work.bytes, 64) << i;
    EXPECT_EQ(entries[i].event, after[i]) << i;
    EXPECT_EQ(entries[i].work.name, i < 2 ? "a" : "b");
  }
  EXPECT_EQ(host->bytes_written(), ScratchFile::kAlignment);

  // Where the device's memory is the host's a disk is all that is on the way.
  WorkLog direct;
  const auto shared = MakeTier({{"b", 64}}, "/nowhere", nullptr, {}, &direct, /*shares_host_memory=*/true);
  shared->Write(0, tensor);
  shared->Read(0, tensor);
  ASSERT_EQ(direct.entries().size(), 2u);
  EXPECT_EQ(direct.entries()[0].work.kind, WorkKind::kToDisk);
  EXPECT_EQ(direct.entries()[1].work.kind, WorkKind::kFromDisk);
}

}  // namespace
}  // namespace longspan
