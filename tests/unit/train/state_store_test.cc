#include "train/state_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/files.h"

namespace longspan {
namespace {

constexpr int64_t kBlock = ScratchFile::kAlignment;
// Of the units, among them none and less than a block.
const std::vector<int64_t> kSizes = {5000, 1024, 0, 3000, 10};

IoHooks Slow() {
  return {.before_each = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }};
}

// A store and what it stands on.
class Store {
 public:
  Store(const std::string& directory, bool optimizer, bool parameters, const IoHooks& hooks = {})
      : background_(hooks.before_each),
        tier_(directory, &background_, hooks),
        store_(kSizes, DType::kBFloat16, /*has_moments=*/true,
               {.tier = &tier_, .optimizer = optimizer, .parameters = parameters}, backend_.get()) {
    tier_.Reserve();
    store_.Allocate(arena_);
  }
  StateStore* operator->() { return &store_; }
  const Arena& arena() const { return arena_; }
  Tier& tier() { return tier_; }

 private:
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);
  Background background_;
  Tier tier_;
  Arena arena_{Arena::Mode::kReal, int64_t{1} << 20};
  StateStore store_;
};

template <class T>
bool Holds(Tensor tensor, float value) {
  const T* x = tensor.data<T>();
  return std::all_of(x, x + tensor.num_elements(), [&](T y) { return static_cast<float>(y) == value; });
}

void Fill(Tensor tensor, float value) {
  float* x = tensor.data<float>();
  std::fill(x, x + tensor.num_elements(), value);
}

// Each update finds what the one before has left, wherever it was meanwhile.
TEST(StateStore, GivesBackWhatWasChangedHoweverSlowTheTier) {
  const testing::TemporaryDirectory disk;
  const int num_units = static_cast<int>(kSizes.size());
  for (const std::string& directory : {std::string(), disk.path()}) {
    for (const auto& [optimizer, parameters] :
         {std::pair(false, false), std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
      Store store(directory, optimizer, parameters, Slow());
      for (int update = 0; update < 3; ++update) {
        const float was = static_cast<float>(update), is = was + 1;
        for (int unit = 0; unit < num_units; ++unit) {
          SCOPED_TRACE(fmt::format("'{}', update {}, unit {}", directory, update, unit));
          if (unit + 1 < num_units) store->Prefetch(unit + 1);
          const UnitState& state = store->Get(unit);
          const float mine = static_cast<float>(100 * unit);
          for (const Tensor& tensor : {state.master, state.exp_avg, state.exp_avg_sq}) {
            EXPECT_EQ(tensor.num_elements(), kSizes[static_cast<size_t>(unit)]);
            EXPECT_TRUE(Holds<float>(tensor, update == 0 ? 0 : mine + was));
            Fill(tensor, mine + is);
          }
          EXPECT_TRUE(Holds<BFloat16>(state.compute, 0));
          store->Changed(unit, /*with_moments=*/true);
        }
      }
      EXPECT_EQ(store.tier().wait_seconds() > 0, optimizer || parameters);
    }
  }
}

TEST(StateStore, WritesMomentsOnlyWhereTheyChanged) {
  const int64_t moments = 2 * Tier::InBlocks(4 * kSizes[0]);
  const int64_t weights = Tier::InBlocks(4 * kSizes[0]) + Tier::InBlocks(2 * kSizes[0]);
  for (const bool parameters : {false, true}) {
    Store store("", true, parameters);
    store->Get(0);
    store->Changed(0, /*with_moments=*/false);
    EXPECT_EQ(store.tier().bytes_written(), parameters ? weights : 0);
    store->Get(0);
    store->Changed(0, /*with_moments=*/true);
    EXPECT_EQ(store.tier().bytes_written(), moments + (parameters ? 2 * weights : 0));
  }
}

// What the model reads is what the last update has left, though it may still be on its way to the tier.
TEST(StateStore, FetchesWhatTheModelReads) {
  const testing::TemporaryDirectory disk;
  for (const std::string& directory : {std::string(), disk.path()}) {
    Store store(directory, true, true, Slow());
    Arena arena(Arena::Mode::kReal, int64_t{1} << 20);
    const Tensor memory = arena.Allocate("fetched", DType::kByte, {4 * kBlock});
    for (const float value : {1.0f, 2.0f}) {
      for (const int unit : {0, 1, 2, 3, 4}) {
        const UnitState& state = store->Get(unit);
        Fill(state.master, value);
        BFloat16* const compute = state.compute.data<BFloat16>();
        std::fill(compute, compute + state.compute.num_elements(), BFloat16(value));
        store->Changed(unit, /*with_moments=*/false);
        const Tensor fetched(memory.raw(), DType::kBFloat16, {kSizes[static_cast<size_t>(unit)]});
        store->Wait(store->FetchForModel(unit, fetched));
        EXPECT_TRUE(Holds<BFloat16>(fetched, value)) << unit;
      }
    }
    EXPECT_THROW(store->ForModel(0), std::logic_error);
  }
  EXPECT_EQ(Store("", true, false)->ForModel(1).num_elements(), kSizes[1]);
}

// Only what was asked for is changed.
TEST(StateStore, ChangesWhatIsOnTheDevice) {
  Store store("", true, false);
  EXPECT_THROW(store->Changed(1, true), std::logic_error);
  store->Get(1);
  store->Get(3);  // which takes its place
  EXPECT_THROW(store->Changed(1, true), std::logic_error);
  store->Changed(3, true);
}

TEST(StateStore, TakesTwoPlacesOnTheDeviceAndTheRestInTheTier) {
  Store resident("", false, false), offloaded("", true, false), both("", true, true);
  const int64_t all = 5000 + 1024 + 3000 + 10;
  const auto& by_name = offloaded.arena().peak_by_name();
  // (5000) and (3000) f32 in blocks of 4,096.
  EXPECT_EQ(by_name.at("optimizer in flight"), 2 * (5 + 3) * kBlock);
  EXPECT_FALSE(by_name.contains("optimizer"));
  EXPECT_EQ(by_name.at("weights"), resident.arena().peak_by_name().at("weights"));
  EXPECT_GE(resident.arena().peak_by_name().at("optimizer"), 8 * all);
  const std::map<std::string, int64_t> tier = {{"optimizer", 2 * (5 + 1 + 0 + 3 + 1) * kBlock}};
  EXPECT_EQ(offloaded.tier().BytesByName(), tier);
  EXPECT_TRUE(resident.tier().BytesByName().empty());
  // (5000) and (3000) f32 and bf16.
  const std::map<std::string, int64_t, std::less<>> in_flight = {
      {"optimizer in flight", 2 * (5 + 3) * kBlock}, {"weights in flight", (5 + 3 + 3 + 2) * kBlock}};
  EXPECT_EQ(both.arena().peak_by_name(), in_flight);

  const std::unique_ptr<Backend> dry_backend = MakeDryBackend(1);
  Tier dry_tier("", /*background=*/nullptr);
  StateStore dry(kSizes, DType::kBFloat16, true, {.tier = &dry_tier, .optimizer = true}, dry_backend.get());
  Arena measured(Arena::Mode::kMeasure);
  dry.Allocate(measured);
  EXPECT_EQ(measured.peak_by_name(), by_name);
  EXPECT_EQ(dry_tier.BytesByName(), tier);
}

}  // namespace
}  // namespace longspan
