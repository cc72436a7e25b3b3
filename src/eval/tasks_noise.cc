// RULER's tasks in noise (Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context Language
// Models?", 2024; its prompts, so that figures can be compared): a single needle, and variable tracking.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/check.h"
#include "eval/task.h"

namespace longspan {
namespace {

constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

constexpr const char* kAdjectives[] = {"amber",  "brisk",  "calm",   "daring", "eager", "faint",
                                       "gentle", "hollow", "icy",    "jolly",  "keen",  "lively",
                                       "mellow", "nimble", "odd",    "polite", "quiet", "rustic",
                                       "silent", "tidy",   "upbeat", "vivid",  "wise",  "young"};
constexpr const char* kNouns[] = {"anchor", "basket", "candle",  "dragon", "engine", "feather",
                                  "garden", "hammer", "island",  "jacket", "kettle", "ladder",
                                  "mirror", "needle", "orchard", "pencil", "quarry", "ribbon",
                                  "saddle", "teapot", "valley",  "window", "willow", "zipper"};

template <size_t N>
const char* OneOf(const char* const (&words)[N], Draws& draws) {
  return words[static_cast<size_t>(draws.Below(N))];
}

// Sentences of noise, and before each the statements that are to stand there: (place, statement), in order of
// the places, 0 … count.
std::string NoiseWith(int64_t count, const std::vector<std::pair<int64_t, std::string>>& statements) {
  std::vector<std::string_view> lines;
  auto next = statements.begin();
  for (int64_t i = 0; i <= count; ++i) {
    for (; next != statements.end() && next->first == i; ++next) lines.push_back(next->second);
    if (i < count) lines.push_back(kNoise);
  }
  CHECK(next == statements.end());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// So many different numbers from `low`, of as many digits.
std::vector<std::string> Numbers(int64_t count, int64_t low, Draws& draws) {
  std::vector<std::string> numbers;
  for (const int64_t n : draws.Distinct(count, 9 * low)) numbers.push_back(std::to_string(low + n));
  return numbers;
}

class Noise : public Task {
 public:
  int64_t min_units() const override { return 1; }
  int64_t max_units() const override { return std::numeric_limits<int32_t>::max(); }
};

class Needle final : public Noise {
 public:
  Question Ask(int64_t units, double depth, int64_t choices, Draws& draws) const override {
    const std::string key = fmt::format("{}-{}", OneOf(kAdjectives, draws), OneOf(kNouns, draws));
    const std::vector<std::string> numbers = Numbers(choices, 1'000'000, draws);
    const int64_t place = std::llround(depth * static_cast<double>(units));
    Question question;
    question.prompt = fmt::format(
        "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz "
        "you about "
        "the number afterwards.\n{}\nWhat is the special magic number for {} mentioned in the provided text? "
        "The "
        "special magic number for {} mentioned in the provided text is",
        NoiseWith(units,
                  {{place, fmt::format("One of the special magic numbers for {} is: {}.", key, numbers[0])}}),
        key, key);
    for (const std::string& number : numbers) question.answers.push_back(" " + number);
    return question;
  }
};

class VariableTracking final : public Noise {
 public:
  bool has_depth() const override { return false; }

  Question Ask(int64_t units, double, int64_t choices, Draws& draws) const override {
    // Chains of variables, each with a value of its own: RULER has one by default, but then every variable of
    // the text is an answer.
    std::vector<std::vector<std::string>> chains = Names(draws);
    const std::vector<std::string> values = Numbers(kChains, 10'000, draws);
    std::vector<std::vector<std::string>> statements;
    for (size_t c = 0; c < chains.size(); ++c) {
      std::vector<std::string>& chain = statements.emplace_back();
      chain.push_back(fmt::format("VAR {} = {}", chains[c][0], values[c]));
      for (size_t i = 1; i < chains[c].size(); ++i)
        chain.push_back(fmt::format("VAR {} = VAR {}", chains[c][i], chains[c][i - 1]));
    }
    Question question;
    question.prompt = fmt::format(
        "Memorize and track the chain(s) of variable assignment hidden in the following "
        "text.\n\n{}\nQuestion: Find "
        "all variables that are assigned the value {} in the text above. Answer: According to the chain(s) "
        "of "
        "variable assignment in the text above, {} variables are assigned the value {}, they are:",
        NoiseWith(units, Spread(statements, units, draws)), values[0], chains[0].size(), values[0]);
    for (const std::vector<std::string>& answer : Answers(chains, choices, draws))
      question.answers.push_back(fmt::format(" {}", fmt::join(answer, ", ")));
    return question;
  }

 private:
  static constexpr int64_t kChains = 4, kHops = 4;

  static std::vector<std::vector<std::string>> Names(Draws& draws) {
    std::set<std::string> taken;
    std::vector<std::vector<std::string>> chains(kChains);
    for (std::vector<std::string>& chain : chains)
      while (chain.size() < kHops + 1) {
        std::string name;
        for (int i = 0; i < 5; ++i) name += static_cast<char>('A' + draws.Below(26));
        if (taken.insert(name).second) chain.push_back(name);
      }
    return chains;
  }

  // Each chain in its order, at places drawn from the whole text.
  static std::vector<std::pair<int64_t, std::string>> Spread(
      const std::vector<std::vector<std::string>>& chains, int64_t units, Draws& draws) {
    std::vector<std::pair<int64_t, std::string>> spread;
    for (const std::vector<std::string>& chain : chains) {
      std::vector<int64_t> places;
      for (size_t i = 0; i < chain.size(); ++i) places.push_back(draws.Below(units + 1));
      std::ranges::sort(places);
      for (size_t i = 0; i < chain.size(); ++i) spread.emplace_back(places[i], chain[i]);
    }
    std::ranges::stable_sort(spread, {}, &std::pair<int64_t, std::string>::first);
    return spread;
  }

  // The right chain; then chains that are another's from some variable on.
  static std::vector<std::vector<std::string>> Answers(const std::vector<std::vector<std::string>>& chains,
                                                       int64_t choices, Draws& draws) {
    constexpr int64_t kWrong = (kChains - 1) * (kHops + 1);
    std::vector<std::vector<std::string>> answers = {chains[0]};
    for (const int64_t n : draws.Distinct(std::min(choices - 1, kWrong), kWrong)) {
      const auto other = static_cast<size_t>(1 + n / (kHops + 1));
      std::vector<std::string> wrong = chains[0];
      std::copy(chains[other].begin() + n % (kHops + 1), chains[other].end(),
                wrong.begin() + n % (kHops + 1));
      answers.push_back(wrong);
    }
    return answers;
  }
};

}  // namespace

std::unique_ptr<Task> MakeNeedle(const std::string&) { return std::make_unique<Needle>(); }
std::unique_ptr<Task> MakeVariableTracking(const std::string&) {
  return std::make_unique<VariableTracking>();
}

}  // namespace longspan
