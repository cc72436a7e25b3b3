#include "train/not_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "model/activations.h"
#include "train/finite_watch.h"
#include "train/trainer.h"

namespace longspan {
namespace {

using Kind = FiniteWatch::Kind;
using Finding = FiniteWatch::Finding;

// Looks at this rank's part of each parameter, or of its gradient, which may be nothing.
void LookAtRows(FiniteWatch& watch, Kind kind, ShardedWeights& weights, int unit, Tensor shard) {
  const Range kept = weights.Kept(unit);
  const std::vector<ParamRow>& rows = weights.table().units[static_cast<size_t>(unit)].rows;
  for (size_t row = 0; row < rows.size(); ++row) {
    const Range part = weights.Kept(unit, {rows[row].offset, rows[row].offset + rows[row].num_elements});
    const Tensor mine = part.empty() ? Tensor() : shard.Rows(part.begin - kept.begin, part.end - kept.begin);
    watch.Look(kind, unit, static_cast<int>(row), mine);
  }
}

// A rank's first finding, of which micro-step; −1: of the weights.
struct Place {
  int64_t micro_step = -1;
  Finding finding;
};

// Takes the step once more.
std::optional<Place> FindHere(Replica& replica, const StepBatches& batches) {
  FiniteWatch& watch = replica.watch();
  ShardedWeights& weights = replica.weights();
  std::optional<Place> place;
  const auto keep_first = [&](int64_t micro_step) {
    if (!place && watch.first()) place = {micro_step, *watch.first()};
  };
  watch.Start();
  weights.ForEachState([&](int unit, const UnitState& state) {
    LookAtRows(watch, Kind::kWeight, weights, unit, state.master);
  });
  keep_first(-1);

  const int64_t num_micro_steps = std::ssize(batches.mine);
  weights.ZeroGradients();
  for (int64_t micro = 0; micro < num_micro_steps; ++micro) {
    watch.Start();
    const size_t i = static_cast<size_t>(micro);
    watch.LookAtLoss(replica.LossAndGradients(batches.mine[i], 1 / static_cast<double>(batches.num_targets),
                                              batches.passes[i]));
    keep_first(micro);
  }
  watch.Start();
  weights.FinishGradients();
  for (int unit = 0; unit < weights.table().num_units(); ++unit)
    LookAtRows(watch, Kind::kGradientSum, weights, unit, weights.FlatGrad(unit));
  keep_first(num_micro_steps);
  watch.Stop();
  return place;
}

std::string NameOf(const ShardedWeights& weights, const Finding& finding) {
  const auto parameter = [&] {
    return weights.table()
        .units[static_cast<size_t>(finding.unit)]
        .rows[static_cast<size_t>(finding.row)]
        .name;
  };
  switch (finding.kind) {
    case Kind::kWeight:
      return parameter();
    case Kind::kActivation:
      return fmt::format("{} of layer {}", RowOf(static_cast<Activation>(finding.row)).name, finding.unit);
    case Kind::kLoss:
      return "the loss";
    case Kind::kGradient:
      return "the gradient of " + parameter();
    case Kind::kGradientSum:
      return fmt::format("the gradient of {}, summed over ranks,", parameter());
  }
  CHECK(false);
}

}  // namespace

std::string FirstNotFinite(Replica& replica, const StepBatches& batches) {
  // By rank: whether it has found anything, and the numbers of its Place.
  using Numbers = std::array<double, 6>;
  const size_t num_ranks = static_cast<size_t>(replica.world().size());
  std::vector<double> all(num_ranks * std::tuple_size_v<Numbers>);
  if (const std::optional<Place> place = FindHere(replica, batches)) {
    const Finding& f = place->finding;
    const Numbers mine = {1,
                          static_cast<double>(place->micro_step),
                          static_cast<double>(f.kind),
                          static_cast<double>(f.order),
                          static_cast<double>(f.unit),
                          static_cast<double>(f.row)};
    std::ranges::copy(mine, all.begin() + replica.world().rank() * std::ssize(mine));
  }
  replica.world().SumOverRanks(all);

  std::optional<Place> first;
  int first_rank = 0;
  const auto order = [](const Place& p) { return std::tuple(p.micro_step, p.finding.kind, p.finding.order); };
  for (int rank = 0; rank < replica.world().size(); ++rank) {
    const double* numbers = all.data() + static_cast<size_t>(rank) * std::tuple_size_v<Numbers>;
    if (numbers[0] == 0) continue;
    const Place place = {static_cast<int64_t>(numbers[1]),
                         {static_cast<Kind>(numbers[2]), static_cast<int64_t>(numbers[3]),
                          static_cast<int>(numbers[4]), static_cast<int>(numbers[5])}};
    if (first && order(*first) <= order(place)) continue;
    first = place;
    first_rank = rank;
  }
  if (!first) return "none that could be found: taken once more, every tensor of the step is finite";
  const bool says_when =
      batches.mine.size() > 1 && first->micro_step >= 0 && first->micro_step < std::ssize(batches.mine);
  return fmt::format("{} on rank {}{}", NameOf(replica.weights(), first->finding), first_rank,
                     says_when ? fmt::format(" in micro-step {}", first->micro_step + 1) : "");
}

}  // namespace longspan
