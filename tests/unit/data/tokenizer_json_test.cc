#include "data/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/expect_error.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::ExpectError;
using Ids = std::vector<int32_t>;

json Added(int id, const std::string& content, const json& flags = json::object()) {
  json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

// Bytes as GPT-2 spells them: "Ġ" is a space, "Ċ" a line feed. Without pre-tokenizer pattern.
json ByteLevelFile() {
  return json::parse(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
      "normalizer": null, "post_processor": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
      "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
      "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": {"a": 0, "b": 1, "Ġ": 2, "Ã": 3, "©": 4, "ab": 5, "Ġa": 6, "Ġab": 7, "1": 8, "Ċ": 9,
                          "A": 10, "Ì": 11, "ģ": 12, "e": 13, "Ã©": 14, "bĠ": 15, "-": 16},
                "merges": ["a b", ["Ġ", "ab"], "Ġ a", "Ã ©", "b Ġ"]}})");
}

// Characters, "▁" for spaces and bytes for what has no token, as Llama 2 has it.
json CharacterFile() {
  json file = json::parse(R"({"version": "1.0", "truncation": null, "padding": null, "pre_tokenizer": null,
      "added_tokens": [], "post_processor": null,
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
      "decoder": {"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
          {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                "vocab": {"<unk>": 256, "▁": 257, "a": 258, "b": 259, "▁a": 260}, "merges": ["▁ a"]}})");
  for (int byte = 0; byte < 256; ++byte) file["model"]["vocab"][fmt::format("<0x{:02X}>", byte)] = byte;
  return file;
}

std::unique_ptr<Tokenizer> Parse(const json& file) { return ParseTokenizerJson(file.dump(), "file"); }
Ids Encode(const json& file, std::string_view text) { return Parse(file)->Encode(text); }

TEST(TokenizerJson, ByteLevel) {
  const auto tokenizer = Parse(ByteLevelFile());
  EXPECT_EQ(tokenizer->vocab_size(), 17);
  const std::string text = "ab ab\u00e9\na";
  const Ids ids = {5, 7, 14, 9, 0};
  EXPECT_EQ(tokenizer->Encode(text), ids);
  EXPECT_EQ(tokenizer->Decode(ids), text);
  EXPECT_TRUE(tokenizer->Encode("").empty());
  EXPECT_EQ(tokenizer->Encode("a?b"), (Ids{5})) << "without unk_token, bytes without a token are left out";
}

TEST(TokenizerJson, BytesThatAreNoTextAreRefused) {
  ExpectError({"UTF-8", "byte 1"}, [] { Encode(ByteLevelFile(), "a\xFF"); });
}

TEST(TokenizerJson, ByteLevelPatternAndPrefix) {
  json file = ByteLevelFile();
  EXPECT_EQ(Encode(file, "b  a"), (Ids{15, 6})) << "in one piece";
  file["pre_tokenizer"]["use_regex"] = true;
  EXPECT_EQ(Encode(file, "b  a"), (Ids{1, 2, 6}));
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(Encode(file, "ab"), (Ids{7}));
  EXPECT_EQ(Encode(file, " ab"), (Ids{7}));
}

TEST(TokenizerJson, SequencesOfPretokenizers) {
  json file = ByteLevelFile();
  const auto cut_by = [&](const json& step) {
    file["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {step, ByteLevelFile()["pre_tokenizer"]}}};
    return Encode(file, "ab ab-1");
  };
  EXPECT_EQ(cut_by({{"type", "Digits"}, {"individual_digits", true}}), (Ids{5, 7, 16, 8}));
  EXPECT_EQ(
      cut_by(
          {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolated"}, {"invert", false}}),
      (Ids{0, 15, 0, 1, 16, 8}));
  EXPECT_EQ(
      cut_by(
          {{"type", "Split"}, {"pattern", {{"Regex", "[ab]+"}}}, {"behavior", "Removed"}, {"invert", true}}),
      (Ids{5, 5}));
  EXPECT_EQ(cut_by({{"type", "Punctuation"}}), (Ids{5, 7, 16, 8}));
  EXPECT_EQ(cut_by({{"type", "WhitespaceSplit"}}), (Ids{5, 5, 16, 8}));
  EXPECT_EQ(cut_by({{"type", "Whitespace"}}), (Ids{5, 5, 16, 8}));
  EXPECT_EQ(cut_by({{"type", "CharDelimiterSplit"}, {"delimiter", "b"}}), (Ids{0, 6, 16, 8}));
}

TEST(TokenizerJson, IgnoreMerges) {
  json file = ByteLevelFile();
  file["model"]["vocab"]["aab"] = 17;
  EXPECT_EQ(Encode(file, "aab"), (Ids{0, 5}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(Encode(file, "aab"), (Ids{17}));
}

TEST(TokenizerJson, Normalizers) {
  json file = ByteLevelFile();
  const auto ids = [&](const json& normalizer, std::string_view text) {
    file["normalizer"] = normalizer;
    return Encode(file, text);
  };
  EXPECT_EQ(ids({{"type", "NFC"}}, "e\u0301"), (Ids{14}));
  EXPECT_EQ(ids({{"type", "NFD"}}, "\u00e9"), (Ids{13, 11, 12}));
  EXPECT_EQ(ids({{"type", "NFKC"}}, "\uff41\u2460"), (Ids{0, 8}));
  EXPECT_EQ(ids({{"type", "NFKD"}}, "\uff41\u00e9"), (Ids{0, 13, 11, 12}));
  EXPECT_EQ(ids({{"type", "Lowercase"}}, "AB\u00c9"), (Ids{5, 14}));
  EXPECT_EQ(ids({{"type", "Prepend"}, {"prepend", "b"}}, "a"), (Ids{1, 0}));
  EXPECT_EQ(ids({{"type", "Prepend"}, {"prepend", "b"}}, ""), (Ids{}));
  EXPECT_EQ(ids({{"type", "Replace"}, {"pattern", {{"String", "-"}}}, {"content", "ab"}}, "a--"),
            (Ids{0, 5, 5}));
  EXPECT_EQ(ids({{"type", "Replace"}, {"pattern", {{"Regex", "-+"}}}, {"content", "1"}}, "a--"), (Ids{0, 8}));
  EXPECT_EQ(ids({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, "\n a\n"), (Ids{0, 9}));
  EXPECT_EQ(ids({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, "\na\u3000\n"),
            (Ids{9, 0}));
}

TEST(TokenizerJson, BytesForUnknownCharacters) {
  const auto tokenizer = Parse(CharacterFile());
  const Ids ids = {260, 257, 0xC3, 0xA9, 260};
  EXPECT_EQ(tokenizer->Encode("a \u00e9 a"), ids);
  EXPECT_EQ(tokenizer->Decode(ids), "a \u00e9 a");
  EXPECT_EQ(tokenizer->Decode(Ids{260, 260}), "a a") << "of the first token alone a space is left out";
  EXPECT_TRUE(tokenizer->Encode("").empty());
}

TEST(TokenizerJson, MetaspaceAndItsDecoder) {
  json file = CharacterFile();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = file["decoder"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}};
  file["added_tokens"] = json::array({Added(261, "<x>", {{"special", true}})});
  EXPECT_EQ(Encode(file, "a a"), (Ids{260, 260}));
  EXPECT_EQ(Parse(file)->EncodeWithSpecialTokens("<x>a a"), (Ids{261, 258, 260}));
  EXPECT_EQ(Parse(file)->Decode(Ids{260, 260}), "a a");
  file["pre_tokenizer"] = file["decoder"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", false}, {"str_rep", "\u2581"}};
  EXPECT_EQ(Encode(file, "a a"), (Ids{258, 260}));
  EXPECT_EQ(Parse(file)->Decode(Ids{260, 260}), " a a");
}

TEST(TokenizerJson, SpecialTokensAreTextUnlessAskedOtherwise) {
  json file = ByteLevelFile();
  file["added_tokens"] = json::array({Added(17, "a-b", {{"special", true}}), Added(18, "b1")});
  const auto tokenizer = Parse(file);
  EXPECT_EQ(tokenizer->Encode("aa-bb1"), (Ids{0, 0, 16, 1, 18}));
  EXPECT_EQ(tokenizer->EncodeWithSpecialTokens("aa-bb1"), (Ids{0, 17, 18}));
  EXPECT_EQ(tokenizer->Decode(Ids{17, 18}), "a-bb1");
  // As in Hugging Face's library, a token that begins within one that is text is not found.
  EXPECT_EQ(tokenizer->Encode("a-b1"), (Ids{0, 16, 1, 8}));
}

TEST(TokenizerJson, FlagsOfAddedTokens) {
  json file = ByteLevelFile();
  const auto ids = [&](const json& flags, std::string_view text) {
    file["added_tokens"] = json::array({Added(17, "b1", flags)});
    return Encode(file, text);
  };
  EXPECT_EQ(ids(json::object(), "a b1 a"), (Ids{0, 2, 17, 6}));
  EXPECT_EQ(ids({{"lstrip", true}}, "a \n b1 a"), (Ids{0, 17, 6}));
  EXPECT_EQ(ids({{"rstrip", true}}, "a b1 \u3000a"), (Ids{0, 2, 17, 0}));
  EXPECT_EQ(ids({{"single_word", true}}, "-b1 ab1 b1a"), (Ids{16, 17, 7, 8, 2, 1, 8, 0}));
  EXPECT_EQ(ids({{"lstrip", true}, {"rstrip", true}}, "a b1 \n b1 a"), (Ids{0, 17, 17, 0}));
  file["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_EQ(ids(json::object(), "B1b1"), (Ids{1, 8, 17}));
  EXPECT_EQ(ids({{"normalized", true}}, "B1b1"), (Ids{17, 17}));
}

TEST(TokenizerJson, TheLongestAddedTokenCounts) {
  json file = ByteLevelFile();
  file["added_tokens"] = json::array({Added(17, "a-"), Added(18, "a--b"), Added(16, "-")});
  EXPECT_EQ(Encode(file, "a--a--ba"), (Ids{17, 16, 18, 0}));
  file["added_tokens"] = json::array({Added(5, "ab")});  // one that the vocabulary has keeps its id
  EXPECT_EQ(Encode(file, " ab"), (Ids{2, 5}));
}

TEST(TokenizerJson, WhatSurroundsADocument) {
  json file = ByteLevelFile();
  file["added_tokens"] =
      json::array({Added(17, "<s>", {{"special", true}}), Added(18, "</s>", {{"special", true}})});
  const json piece = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto special = [](const char* name) {
    return json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  const json shape = {{"type", "TemplateProcessing"},
                      {"single", {special("<s>"), piece, special("</s>")}},
                      {"pair", json::array()},
                      {"special_tokens",
                       {{"<s>", {{"id", "<s>"}, {"ids", {17}}, {"tokens", {"<s>"}}}},
                        {"</s>", {{"id", "</s>"}, {"ids", {18}}, {"tokens", {"</s>"}}}}}}};
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, shape}}};
  auto tokenizer = Parse(file);
  EXPECT_EQ(tokenizer->Encode("a"), (Ids{0})) << "Encode adds none";
  EXPECT_EQ(Ids(tokenizer->document_prefix().begin(), tokenizer->document_prefix().end()), (Ids{17}));
  EXPECT_EQ(Ids(tokenizer->document_suffix().begin(), tokenizer->document_suffix().end()), (Ids{18}));

  file["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", {"</s>", 18}},
                            {"cls", {"<s>", 17}},
                            {"trim_offsets", true},
                            {"add_prefix_space", false}};
  tokenizer = Parse(file);
  EXPECT_EQ(tokenizer->document_prefix()[0], 17);
  EXPECT_EQ(tokenizer->document_suffix()[0], 18);

  file["post_processor"]["cls"][1] = 99;
  ExpectError({"file.post_processor", "99"}, [&] { Parse(file); });
  file["post_processor"] = shape;
  file["post_processor"]["single"] = {special("<s>")};
  ExpectError({"single", "0 times"}, [&] { Parse(file); });
}

TEST(TokenizerJson, WithoutDecoderTokensAreApart) {
  json file = CharacterFile();
  file["decoder"] = nullptr;
  EXPECT_EQ(Parse(file)->Decode(Ids{260, 258}), "\u2581a a");
}

// Whatever would change ids and is not implemented is refused by name.
TEST(TokenizerJson, RefusesWhatItDoesNotKnow) {
  struct Case {
    std::string path;
    json value;
    std::vector<std::string_view> parts;
  };
  const json split = {
      {"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json byte_level = ByteLevelFile()["pre_tokenizer"];
  for (const Case& c : std::vector<Case>{
           {"/model/type", "WordPiece", {"file.model", "WordPiece"}},
           {"/model/dropout", 0.1, {"file.model.dropout", "0.1"}},
           {"/model/continuing_subword_prefix", "##", {"continuing_subword_prefix", "##"}},
           {"/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"}},
           {"/model/byte_fallback", true, {"byte_fallback", "ByteLevel"}},
           {"/model/novelty", 1, {"file.model.novelty"}},
           {"/novelty", 1, {"file.novelty"}},
           {"/version", "2.0", {"version", "2.0"}},
           {"/truncation", {{"max_length", 8}}, {"file.truncation"}},
           {"/padding", {{"strategy", "BatchLongest"}}, {"file.padding"}},
           {"/normalizer", {{"type", "Precompiled"}}, {"normalizer", "Precompiled"}},
           {"/normalizer", {{"type", "NFC"}, {"novelty", 1}}, {"normalizer.novelty"}},
           {"/normalizer",
            {{"type", "Replace"}, {"pattern", {{"Regex", "["}}}, {"content", ""}},
            {"pattern", "set"}},
           {"/normalizer",
            {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}},
            {"pattern", "empty"}},
           {"/pre_tokenizer", {{"type", "UnicodeScripts"}}, {"pre_tokenizer", "UnicodeScripts"}},
           {"/pre_tokenizer",
            {{"type", "Sequence"}, {"pretokenizers", {byte_level, split}}},
            {"ByteLevel before"}},
           {"/pre_tokenizer/novelty", 1, {"pre_tokenizer.novelty"}},
           {"/post_processor", {{"type", "Novelty"}}, {"post_processor", "Novelty"}},
           {"/decoder", {{"type", "WordPiece"}}, {"decoder", "WordPiece"}},
           {"/decoder",
            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}},
            {"Strip", "Fuse"}}}) {
    json file = ByteLevelFile();
    file[json::json_pointer(c.path)] = c.value;
    try {
      Parse(file);
      ADD_FAILURE() << c.path << " = " << c.value;
    } catch (const Error& error) {
      for (const std::string_view part : c.parts)
        EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
            << error.what() << " lacks " << part;
    }
  }
}

TEST(TokenizerJson, RefusesVocabulariesThatContradictThemselves) {
  const auto refuse = [](std::initializer_list<std::string_view> parts, const std::string& path,
                         const json& value) {
    json file = ByteLevelFile();
    file[json::json_pointer(path)] = value;
    ExpectError(parts, [&] { Parse(file); });
  };
  refuse({"file.model.vocab.'b'", "2147483648"}, "/model/vocab/b", int64_t{1} << 31);
  refuse({"vocab.'b'", "-1"}, "/model/vocab/b", -1);
  refuse({"vocab.'b'", "1.5"}, "/model/vocab/b", 1.5);
  refuse({"'a'", "'b'", "same id 0"}, "/model/vocab/b", 0);
  refuse({"vocab", "[]"}, "/model/vocab", json::array());
  refuse({"merges[0]", "'x'"}, "/model/merges/0", "a x");
  refuse({"merges[0]", "'ba'", "vocabulary"}, "/model/merges/0", "b a");
  refuse({"merges[0]", "two tokens"}, "/model/merges/0", "a b c");
  refuse({"merges[0]", "two tokens"}, "/model/merges/0", json{"a", "b", "c"});
  refuse({"merges[0]", "empty"}, "/model/merges/0", " a");
  refuse({"merges[0]", "empty"}, "/model/merges/0", json{"a", ""});
  refuse({"unk_token", "<unk>"}, "/model/unk_token", "<unk>");
  refuse({"added_tokens[0]", "'x'", "id 20", "17"}, "/added_tokens", json::array({Added(20, "x")}));
  refuse({"added_tokens[0]", "'ab'", "id 17", "5"}, "/added_tokens", json::array({Added(17, "ab")}));
  refuse({"added_tokens[1]", "'x'", "twice"}, "/added_tokens", json::array({Added(17, "x"), Added(18, "x")}));
  refuse({"added_tokens[0].id", "16777216"}, "/added_tokens", json::array({Added(1 << 24, "x")}));
  refuse({"added_tokens[0]", "empty"}, "/added_tokens", json::array({Added(17, "")}));
  json without = Added(17, "x");
  without.erase("lstrip");
  refuse({"added_tokens[0]", "lstrip"}, "/added_tokens", json::array({without}));
  refuse({"added_tokens", "list"}, "/added_tokens", "x");
}

TEST(TokenizerJson, RefusesBrokenFiles) {
  const std::string text = ByteLevelFile().dump();
  for (size_t size = 0; size < text.size(); size += 7)
    ExpectError({"file"}, [&] { ParseTokenizerJson(std::string_view(text).substr(0, size), "file"); });
  std::string twice = text;
  twice.replace(twice.find("\"ab\":5"), 6, "\"ab\":5,\"ab\":5");
  ExpectError({"'ab'", "twice"}, [&] { ParseTokenizerJson(twice, "file"); });
  ExpectError({"file", "object"}, [] { ParseTokenizerJson("[]", "file"); });
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 200; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  json file = ByteLevelFile();
  file["normalizer"] = nested;
  ExpectError({"deep"}, [&] { Parse(file); });
}

// A member that is missing or of another type anywhere is an Error, and nothing worse.
TEST(TokenizerJson, AnyMemberMayBeMissingOrWrong) {
  const json whole = CharacterFile().flatten();
  for (const auto& [path, value] : whole.items()) {
    if (path.find("<0x") != path.npos) continue;
    for (const json& wrong : {json(), json(7), json("x"), json::array(), json::object(), json(true)}) {
      json file = CharacterFile();
      file[json::json_pointer(path)] = wrong;
      try {
        Parse(file)->Encode("a b");
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace longspan
