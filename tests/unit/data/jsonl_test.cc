#include "data/jsonl.h"

#include <gtest/gtest.h>

#include "core/target.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

constexpr int32_t kNone = kIgnoreTarget;
using Ids = std::vector<int32_t>;

JsonlDocument Parse(std::string_view line) { return ParseJsonlLine(line, 100, "a.jsonl:7"); }

TEST(Jsonl, Text) {
  const JsonlDocument document =
      Parse(R"({"id": 3, "text": "a\u00e9\n", "meta": {"text": [1, {"x": null}]}})");
  EXPECT_EQ(document.text, "a\xc3\xa9\n");
  EXPECT_TRUE(document.ids.empty());
  EXPECT_EQ(Parse(R"({"text": ""})").text, "");
}

TEST(Jsonl, EqualKeysOfDifferentObjectsAreNoRepetition) {
  EXPECT_EQ(Parse(R"({"a": {"x": 1, "y": {"x": 2}}, "b": [{"x": 1}, {"x": 2}], "x": {}, "text": "t"})").text,
            "t");
}

TEST(Jsonl, Ids) {
  const JsonlDocument document = Parse(R"({"input_ids": [0, 99, 5], "attention_mask": [1, 1, 1]})");
  EXPECT_FALSE(document.text.has_value());
  EXPECT_EQ(document.ids, (Ids{0, 99, 5}));
  EXPECT_FALSE(document.labels.has_value());
}

TEST(Jsonl, LossMaskTakesNumbersAndBooleans) {
  EXPECT_EQ(
      Parse(R"({"input_ids": [7, 8, 9, 10, 11, 12], "loss_mask": [0, 1, false, true, 0.0, 1.0]})").labels,
      (Ids{kNone, 8, kNone, 10, kNone, 12}));
}

TEST(Jsonl, LabelsBelongToTheirOwnToken) {
  EXPECT_EQ(Parse(R"({"labels": [-100, 8, 50], "input_ids": [7, 8, 9]})").labels, (Ids{kNone, 8, 50}));
}

struct BadLine {
  const char* line;
  std::initializer_list<std::string_view> parts;  // of the message
};

TEST(Jsonl, BadLinesAreRefusedWithPlaceAndCause) {
  const BadLine cases[] = {
      {R"({"text": "a")", {"not valid JSON", "column"}},
      {R"({"text": "a"} x)", {"not valid JSON"}},
      {"{\"text\": \"\xff\"}", {"not valid JSON", "UTF-8"}},
      {"{\"text\": \"\xc3\"}", {"not valid JSON", "UTF-8"}},
      {"{\"text\": \"\xed\xa0\x80\"}", {"not valid JSON", "UTF-8"}},
      {R"({"text": "\ud800"})", {"not valid JSON"}},
      {R"({"text": "a", "n": NaN})", {"not valid JSON"}},
      {R"({"text": "a", "n": 1e999})", {"not valid JSON", "1e999"}},
      {R"(["a"])", {R"(["a"])", "object"}},
      {R"("text")", {"object"}},
      {R"({"text": "a", "text": "a"})", {"'text'", "twice"}},
      {R"({"text": "a", "meta": {"x": 1, "x": 1}})", {"'x'", "twice"}},
      {R"({"text": "a", "input_ids": [1]})", {"both \"text\" and \"input_ids\""}},
      {R"({"content": "a"})", {"neither \"text\" nor \"input_ids\""}},
      {R"({"text": 3})", {"\"text\" is 3", "string"}},
      {R"({"text": null})", {"\"text\" is null", "string"}},
      {R"({"text": "a", "loss_mask": [1]})", {"\"loss_mask\" needs \"input_ids\""}},
      {R"({"text": "a", "labels": [1]})", {"\"labels\" needs \"input_ids\""}},
      {R"({"input_ids": 5})", {"\"input_ids\" is 5", "list"}},
      {R"({"input_ids": [[1, 2]]})", {"input_ids[0] is [1,2]", "0 to 99"}},
      {R"({"input_ids": [1, -1]})", {"input_ids[1] is -1", "0 to 99"}},
      {R"({"input_ids": [1, 2, 100]})", {"input_ids[2] is 100", "0 to 99", "vocab_size is 100"}},
      {R"({"input_ids": [4294967297]})", {"input_ids[0] is 4294967297"}},
      {R"({"input_ids": [99999999999999999999]})", {"input_ids[0] is 1e+20"}},
      {R"({"input_ids": [1.0]})", {"input_ids[0] is 1.0"}},
      {R"({"input_ids": [true]})", {"input_ids[0] is true"}},
      {R"({"input_ids": ["1"]})", {"input_ids[0] is \"1\""}},
      {R"({"input_ids": [-100]})", {"input_ids[0] is -100"}},
      {R"({"input_ids": [1, 2], "loss_mask": [1]})", {"\"loss_mask\" has 1", "\"input_ids\" has 2"}},
      {R"({"input_ids": [1, 2], "labels": [1, 2, 3]})", {"\"labels\" has 3", "\"input_ids\" has 2"}},
      {R"({"input_ids": [1], "labels": 1})", {"\"labels\" is 1", "list"}},
      {R"({"input_ids": [1], "labels": [-1]})", {"labels[0] is -1", "-100"}},
      {R"({"input_ids": [1], "labels": [100]})", {"labels[0] is 100"}},
      {R"({"input_ids": [1], "labels": [-100.0]})", {"labels[0] is -100.0"}},
      {R"({"input_ids": [1], "loss_mask": [2]})", {"loss_mask[0] is 2"}},
      {R"({"input_ids": [1], "loss_mask": [0.5]})", {"loss_mask[0] is 0.5"}},
      {R"({"input_ids": [1], "loss_mask": [null]})", {"loss_mask[0] is null"}},
      {R"({"input_ids": [1], "loss_mask": ["1"]})", {"loss_mask[0] is \"1\""}},
      {R"({"input_ids": [1], "loss_mask": [1], "labels": [1]})", {"both \"loss_mask\" and \"labels\""}},
  };
  for (const BadLine& c : cases) {
    SCOPED_TRACE(c.line);
    testing::ExpectError({"a.jsonl:7: "}, [&] { Parse(c.line); });
    testing::ExpectError(c.parts, [&] { Parse(c.line); });
  }
}

// `levels` lists in one another, below the line's object.
std::string Nested(size_t levels) {
  return "{\"text\": \"t\", \"deep\": " + std::string(levels, '[') + std::string(levels, ']') + "}";
}

TEST(Jsonl, NestingIsLimited) {
  EXPECT_EQ(Parse(Nested(127)).text, "t");
  testing::ExpectError({"a.jsonl:7", "more than 128"}, [] { Parse(Nested(128)); });
  // So many that whatever visits them recursively runs out of stack.
  testing::ExpectError({"a.jsonl:7", "more than 128"}, [] { Parse(Nested(1'000'000)); });
  testing::ExpectError({"a.jsonl:7", "more than 128"}, [] { Parse(std::string(1'000'000, '[')); });
  std::string objects;
  for (int i = 0; i < 129; ++i) objects += "{\"x\":";
  testing::ExpectError({"more than 128"}, [&] { Parse(objects); });
}

TEST(Jsonl, MessagesStayShort) {
  const std::string long_text(100000, 'x');
  for (const std::string& line : {"{\"text\": \"" + long_text, "[\"" + long_text + "\"]"}) {
    try {
      Parse(line);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_LT(std::string_view(e.what()).size(), 500u);
    }
  }
}

}  // namespace
}  // namespace longspan
