// Tasks that look something up in what a file holds: a key among pairs, a verse among verses.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/check.h"
#include "core/file.h"
#include "data/decompress.h"
#include "data/json.h"
#include "eval/task.h"

namespace longspan {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 32;  // of a task's file, decompressed

std::string ReadFile(const std::string& path) {
  if (!IsCompressed(path)) return ReadTextFile(path);
  return ReadAll(*OpenCompressed(path), path, kMaxFileBytes);
}

// Of `count` things the one behind `depth` of the others.
int64_t PlaceAt(double depth, int64_t count) { return std::llround(depth * static_cast<double>(count - 1)); }

// The lines of a file with their numbers, without line ends and blank lines.
std::vector<std::pair<int64_t, std::string>> LinesOf(const std::string& text) {
  std::vector<std::pair<int64_t, std::string>> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    ++number;
    if (line.find_first_not_of(" \t") != line.npos) lines.emplace_back(number, std::move(line));
    begin = end + 1;
  }
  return lines;
}

// Appends to `answers` other ones, at most `count`, drawn from [0, num_others).
template <class Answer>
void AppendOthers(int64_t count, int64_t num_others, Draws& draws, Answer answer,
                  std::vector<std::string>& answers) {
  for (const int64_t n : draws.Distinct(std::min(count, num_others), num_others)) {
    std::string other = answer(n);
    if (std::ranges::find(answers, other) == answers.end()) answers.push_back(std::move(other));
  }
}

// A line of JSON has `ordered_kv_records`, a list of [key, value], and the `key` that is asked for (Liu et
// al., "Lost in the Middle", 2023, whose prompt this is). A longer text takes more pairs from the lines that
// follow.
class KeyValue final : public Task {
 public:
  explicit KeyValue(const std::string& path) {
    for (const auto& [number, line] : LinesOf(ReadFile(path)))
      ReadRecord(line, fmt::format("{}:{}", path, number));
    Require(!records_.empty(), "{} holds no records; a line is an object with `ordered_kv_records` and `key`",
            path);
    for (const Record& record : records_) num_pairs_ += static_cast<int64_t>(record.pairs.size());
  }

  int64_t min_units() const override { return 1; }
  int64_t max_units() const override { return num_pairs_; }

  Question Ask(int64_t units, double depth, int64_t choices, Draws& draws) const override {
    const auto record = static_cast<size_t>(draws.Below(static_cast<int64_t>(records_.size())));
    const Pair asked = records_[record].pairs[records_[record].asked];
    std::vector<Pair> pairs = Others(record, units - 1);
    Question question;
    question.answers.push_back(Answer(asked));
    AppendOthers(
        choices - 1, units - 1, draws, [&](int64_t n) { return Answer(pairs[static_cast<size_t>(n)]); },
        question.answers);
    pairs.insert(pairs.begin() + PlaceAt(depth, units), asked);

    std::vector<std::string> lines;
    for (const Pair& pair : pairs) lines.push_back(fmt::format("\"{}\": \"{}\"", pair.key, pair.value));
    question.prompt = fmt::format(
        "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON "
        "data:\n{{{}}}\n\n"
        "Key: \"{}\"\nCorresponding value:",
        fmt::join(lines, ",\n "), asked.key);
    return question;
  }

 private:
  struct Pair {
    std::string key, value;
  };
  struct Record {
    std::vector<Pair> pairs;
    size_t asked = 0;
  };

  static std::string Answer(const Pair& pair) { return fmt::format(" \"{}\"", pair.value); }

  void ReadRecord(const std::string& line, const std::string& where) {
    const nlohmann::json json = ParseJson(line, where);
    Require(json.is_object() && json.contains("ordered_kv_records") &&
                json["ordered_kv_records"].is_array() && json.contains("key") && json["key"].is_string(),
            "{}: {} is no record; an object with `ordered_kv_records`, a list of pairs, and `key` is wanted",
            where, Quoted(json));
    Record record;
    std::optional<size_t> asked;
    for (const nlohmann::json& pair : json["ordered_kv_records"]) {
      Require(pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string(),
              "{}: {} is no pair of two strings", where, Quoted(pair));
      if (pair[0] == json["key"]) asked = record.pairs.size();
      Require(keys_.insert(pair[0].get<std::string>()).second, "{}: the key {} was there before", where,
              Quoted(pair[0]));
      record.pairs.push_back({pair[0].get<std::string>(), pair[1].get<std::string>()});
    }
    Require(asked.has_value(), "{}: the key {} is none of the pairs'", where, Quoted(json["key"]));
    record.asked = *asked;
    records_.push_back(std::move(record));
  }

  // The pairs of a record but for the one that is asked for, then those of the records behind it, in a
  // circle.
  std::vector<Pair> Others(size_t record, int64_t count) const {
    std::vector<Pair> others;
    for (size_t r = record; static_cast<int64_t>(others.size()) < count; r = (r + 1) % records_.size())
      for (size_t i = 0; i < records_[r].pairs.size() && static_cast<int64_t>(others.size()) < count; ++i)
        if (r != record || i != records_[r].asked) others.push_back(records_[r].pairs[i]);
    return others;
  }

  std::vector<Record> records_;
  std::set<std::string> keys_;
  int64_t num_pairs_ = 0;
};

// Lines of an address, a space and a verse. Asked is what stands behind an address that the text has.
class Bible final : public Task {
 public:
  explicit Bible(const std::string& path) {
    for (const auto& [number, line] : LinesOf(ReadFile(path))) {
      const size_t space = line.find(' ');
      Require(space != line.npos && space > 0 && space + 1 < line.size(),
              "{}:{}: '{}' is no verse; a line is an address without spaces, a space and the verse", path,
              number, Shortened(line, 60));
      Require(addresses_.insert(line.substr(0, space)).second, "{}:{}: the address {} was there before", path,
              number, line.substr(0, space));
      verses_.push_back({line.substr(0, space), line.substr(space)});
    }
    Require(!verses_.empty(), "{} holds no verse; a line is an address, a space and the verse", path);
  }

  int64_t min_units() const override { return 1; }
  int64_t max_units() const override { return static_cast<int64_t>(verses_.size()); }

  Question Ask(int64_t units, double depth, int64_t choices, Draws& draws) const override {
    const int64_t begin = draws.Below(max_units() - units + 1);
    const int64_t asked = begin + PlaceAt(depth, units);
    Question question;
    for (int64_t i = begin; i < begin + units; ++i) question.prompt += At(i).address + At(i).verse + "\n";
    question.prompt += At(asked).address;
    question.answers.push_back(At(asked).verse);
    AppendOthers(
        choices - 1, units - 1, draws,
        [&](int64_t n) { return At(begin + n + (begin + n >= asked ? 1 : 0)).verse; }, question.answers);
    return question;
  }

 private:
  struct Verse {
    std::string address, verse;  // the verse with the space before it
  };
  const Verse& At(int64_t i) const { return verses_[static_cast<size_t>(i)]; }

  std::vector<Verse> verses_;
  std::set<std::string> addresses_;
};

}  // namespace

std::unique_ptr<Task> MakeKeyValue(const std::string& path) { return std::make_unique<KeyValue>(path); }
std::unique_ptr<Task> MakeBible(const std::string& path) { return std::make_unique<Bible>(path); }

}  // namespace longspan
