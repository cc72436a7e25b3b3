#include "train/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "support/expect_error.h"
#include "support/files.h"
#include "support/safetensors.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::TemporaryDirectory;
using testing::WriteText;

// A file with this header (padded by nothing) and data.
std::string FileOf(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + std::string(header) + std::string(data);
}

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class Reader>
std::vector<float> Read(const Reader& reader, std::string_view name, std::vector<int64_t> shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  std::vector<float> values(static_cast<size_t>(n) + 1,
                            -1);  // one more, since the data of an empty vector is null
  reader.ReadFloat32(name, Tensor(values.data(), DType::kFloat32, shape));
  EXPECT_EQ(values.back(), -1);
  values.pop_back();
  return values;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsReader Open(const std::string& file) const {
    return SafetensorsReader(WriteText(directory_ / "a.safetensors", file));
  }
  TemporaryDirectory directory_;
};

struct NamedValues {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::vector<SafetensorsTensor> AsTensors(std::vector<NamedValues>& all) {
  std::vector<SafetensorsTensor> tensors;
  for (NamedValues& t : all)
    tensors.push_back({t.name, Tensor(t.values.data(), DType::kFloat32, t.shape), t.shape});
  return tensors;
}

TEST_F(SafetensorsTest, WhatIsWrittenIsRead) {
  // The second tensor is written in more than one chunk.
  std::vector<NamedValues> all = {{"b", {2, 3}, {1, -2, 3.1415927f, 0.f, -0.f, 1e-40f}},
                                  {"a", {600001}, std::vector<float>(600001)},
                                  {"c", {1, 1, 1, 1}, {7}}};
  for (size_t i = 0; i < all[1].values.size(); ++i) all[1].values[i] = static_cast<float>(i) * 0.37f;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::string stem = Name(dtype);
    WriteSafetensors(directory_.path(), stem, AsTensors(all), dtype, int64_t{1} << 30);
    const std::string path = directory_ / (stem + ".safetensors");
    const SafetensorsReader reader(path);
    EXPECT_EQ(reader.metadata().at("format"), "pt");
    ASSERT_EQ(reader.entries().size(), 3u);
    for (const NamedValues& t : all) {
      std::vector<float> expected = t.values;
      if (dtype == DType::kBFloat16)
        for (float& x : expected) x = static_cast<float>(BFloat16(x));
      const std::vector<float> got = Read(reader, t.name, t.shape);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << t.name;
    }
    // In the order given, without gaps, from a multiple of 8 on.
    const std::string file = ReadTextFile(path);
    uint64_t header_size = 0;
    std::memcpy(&header_size, file.data(), 8);
    EXPECT_EQ(header_size % 8, 0u);
    EXPECT_EQ(file[8], '{');
    EXPECT_EQ(file.size(), 8 + header_size + static_cast<size_t>(SizeOf(dtype)) * (6 + 600001 + 1));
    EXPECT_EQ(reader.entries().at("b").begin, 0);
    EXPECT_EQ(reader.entries().at("a").begin, 6 * SizeOf(dtype));
    EXPECT_EQ(reader.entries().at("b").type->name, dtype == DType::kFloat32 ? "F32" : "BF16");
    ExpectError(
        {path}, [&] { WriteSafetensors(directory_.path(), stem, AsTensors(all), dtype, 1 << 30); },
        ExitCode::kResource);  // never over another
  }
}

TEST_F(SafetensorsTest, ShardsAreFilledInOrder) {
  std::vector<NamedValues> all = {{"t0", {2}, {0, 1}},
                                  {"t1", {1}, {2}},
                                  {"t2", {4}, {3, 4, 5, 6}},
                                  {"t3", {1}, {7}},
                                  {"t4", {2}, {8, 9}}};
  WriteSafetensors(directory_.path(), "model", AsTensors(all), DType::kFloat32, 12);  // bytes: 3 elements
  const auto index = nlohmann::json::parse(ReadTextFile(directory_ / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 40);
  const auto shard = [](int i) { return "model-0000" + std::to_string(i) + "-of-00003.safetensors"; };
  EXPECT_EQ(index["weight_map"], nlohmann::json({{"t0", shard(1)},
                                                 {"t1", shard(1)},
                                                 {"t2", shard(2)},  // larger than a shard may be
                                                 {"t3", shard(3)},
                                                 {"t4", shard(3)}}));
  EXPECT_FALSE(fs::exists(directory_ / "model.safetensors"));
  const SafetensorsDirectory files(directory_.path(), "model");
  for (const NamedValues& t : all) {
    EXPECT_EQ(Read(files, t.name, t.shape), t.values);
    EXPECT_EQ(files.Shape(t.name), t.shape);
  }
  EXPECT_EQ(files.Names(), (std::vector<std::string>{"t0", "t1", "t2", "t3", "t4"}));

  // No shard is empty, also where the first tensor is larger than one may be.
  std::swap(all[0], all[2]);
  WriteSafetensors(directory_.path(), "first", AsTensors(all), DType::kFloat32, 12);
  EXPECT_TRUE(fs::exists(directory_ / "first-00003-of-00003.safetensors"));
  EXPECT_EQ(Read(SafetensorsDirectory(directory_.path(), "first"), "t2", {4}),
            (std::vector<float>{3, 4, 5, 6}));

  WriteSafetensors(directory_.path(), "one", AsTensors(all), DType::kFloat32, 40);
  EXPECT_TRUE(fs::exists(directory_ / "one.safetensors"));
  WriteSafetensors(directory_.path(), "two", AsTensors(all), DType::kFloat32, 39);
  EXPECT_TRUE(fs::exists(directory_ / "two-00002-of-00002.safetensors"));
  WriteSafetensors(directory_.path(), "half", AsTensors(all), DType::kBFloat16, 20);
  EXPECT_TRUE(fs::exists(directory_ / "half.safetensors"));
}

TEST_F(SafetensorsTest, EveryFloatTypeIsConverted) {
  const std::vector<double> doubles = {1.0 / 3, -1e300, 4};
  const std::vector<float> floats = {0.1f, -5};
  const std::vector<BFloat16> brains = {BFloat16(1.5f), BFloat16(-std::numeric_limits<float>::infinity())};
  // The header's length is odd: nothing is aligned.
  const std::string header = R"({"f64":{"dtype":"F64","shape":[3],"data_offsets":[0,24]},)"
                             R"("f32":{"dtype":"F32","shape":[2,1],"data_offsets":[24,32]},)"
                             R"("bf16":{"dtype":"BF16","shape":[2],"data_offsets":[32,36]},)"
                             R"("i64":{"dtype":"I64","shape":[1],"data_offsets":[36,44]}})";
  const SafetensorsReader reader =
      Open(FileOf(header + std::string(1 - header.size() % 2, ' '),
                  BytesOf(doubles) + BytesOf(floats) + BytesOf(brains) + std::string(8, 'x')));
  EXPECT_EQ(Read(reader, "f64", {3}),
            (std::vector<float>{1.0f / 3, -std::numeric_limits<float>::infinity(), 4}));
  EXPECT_EQ(Read(reader, "f32", {2, 1}), floats);
  EXPECT_EQ(Read(reader, "bf16", {2}), (std::vector<float>{1.5f, -std::numeric_limits<float>::infinity()}));
  ExpectError({"a.safetensors", "'i64'", "I64", "F32"}, [&] { Read(reader, "i64", {1}); });
  ExpectError({"a.safetensors", "'f32'", "(2, 1)", "(1, 2) is wanted"}, [&] { Read(reader, "f32", {1, 2}); });
  ExpectError({"a.safetensors", "'f32'", "(2, 1)", "(2) is wanted"}, [&] { Read(reader, "f32", {2}); });
  ExpectError({"a.safetensors", "no tensor 'f33'"}, [&] { Read(reader, "f33", {2}); });
}

TEST_F(SafetensorsTest, EveryHalf) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const SafetensorsReader reader =
      Open(FileOf(R"({"h":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})", BytesOf(halves)));
  const std::vector<float> values = Read(reader, "h", {65536});
  for (int i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31, mantissa = i & 1023;
    const float got = values[static_cast<size_t>(i)];
    EXPECT_EQ(std::signbit(got), i >= 32768) << i;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(got)) << i;
      continue;
    }
    float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                   : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    if (exponent == 31) expected = std::numeric_limits<float>::infinity();
    ASSERT_EQ(std::fabs(got), expected) << i;
  }
}

TEST_F(SafetensorsTest, EveryFloatOf8Bits) {
  std::string bytes(256, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  const SafetensorsReader reader =
      Open(FileOf(R"({"e4m3":{"dtype":"F8_E4M3","shape":[256],"data_offsets":[0,256]},)"
                  R"("e5m2":{"dtype":"F8_E5M2","shape":[4,64],"data_offsets":[256,512]}})",
                  bytes + bytes));
  const std::vector<float> e4m3 = Read(reader, "e4m3", {256}), e5m2 = Read(reader, "e5m2", {4, 64});
  const auto expect = [](int bits, float got, int mantissa_bits, int bias) {
    const int exponent = (bits & 127) >> mantissa_bits, one = 1 << mantissa_bits, mantissa = bits & (one - 1);
    const float magnitude =
        exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                      : std::ldexp(static_cast<float>(one + mantissa), exponent - bias - mantissa_bits);
    EXPECT_EQ(got, bits < 128 ? magnitude : -magnitude) << bits;
    EXPECT_EQ(std::signbit(got), bits >= 128) << bits;
  };
  for (int i = 0; i < 256; ++i) {
    const float four = e4m3[static_cast<size_t>(i)], five = e5m2[static_cast<size_t>(i)];
    if ((i & 127) == 127) {
      EXPECT_TRUE(std::isnan(four)) << i;  // and no infinities
    } else {
      expect(i, four, 3, 7);
    }
    if ((i & 127) > 124) {
      EXPECT_TRUE(std::isnan(five)) << i;
    } else if ((i & 127) == 124) {
      EXPECT_EQ(five, std::numeric_limits<float>::infinity() * (i < 128 ? 1.f : -1.f)) << i;
    } else {
      expect(i, five, 2, 15);
    }
  }
  EXPECT_EQ(e4m3[126], 448);
  EXPECT_EQ(e5m2[123], 57344);
}

TEST_F(SafetensorsTest, Parts) {
  std::vector<NamedValues> all = {{"a", {2, 3}, {0, 1, 2, 3, 4, 5}}, {"b", {2}, {6, 7}}};
  WriteSafetensors(directory_.path(), "model", AsTensors(all), DType::kBFloat16, 1 << 20);
  const SafetensorsDirectory files(directory_.path(), "model");
  std::vector<float> values(4);
  files.ReadFloat32("a", 1, values);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4}));
  std::vector<BFloat16> stored(2);
  files.ReadStored("a", 4, std::as_writable_bytes(std::span(stored)));
  EXPECT_EQ(static_cast<float>(stored[0]), 4);
  EXPECT_EQ(static_cast<float>(stored[1]), 5);
  EXPECT_THROW(files.ReadFloat32("a", 3, values), std::logic_error);
  EXPECT_EQ(files.At("b").num_elements(), 2);
}

TEST_F(SafetensorsTest, EmptyAndScalarTensors) {
  const SafetensorsReader reader = Open(FileOf(R"({"z":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
                                               R"("empty":{"dtype":"F32","shape":[0,9223372036854775807,4],)"
                                               R"("data_offsets":[0,0]},"scalar":{"dtype":"F32","shape":[],)"
                                               R"("data_offsets":[0,4]},"end":{"dtype":"F64","shape":[0],)"
                                               R"("data_offsets":[4,4]}}   )",
                                               BytesOf(std::vector<float>{3})));
  EXPECT_EQ(Read(reader, "scalar", {}), std::vector<float>{3});
  EXPECT_EQ(Read(reader, "end", {0}), std::vector<float>{});
  EXPECT_TRUE(Open(FileOf("{}", "")).entries().empty());
}

TEST_F(SafetensorsTest, BadFilesAreRefusedByName) {
  const auto tensor = [](std::string_view rest) {
    return "{\"w\":{\"dtype\":\"F32\"," + std::string(rest) + "}}";
  };
  const std::string good = tensor(R"("shape":[2],"data_offsets":[0,8])");
  const std::string data(8, 'd');
  ASSERT_TRUE(Open(FileOf(good, data)).Has("w"));
  struct Case {
    std::string file;
    std::initializer_list<std::string_view> parts;
  };
  const std::string huge_header = std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}";
  const std::string large_header = std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}";  // 100,000,001
  const Case cases[] = {
      {"", {"0 bytes"}},
      {"1234567", {"7 bytes"}},
      {huge_header, {"18446744073709551615", "100000000"}},
      {large_header, {"100000001", "100000000"}},
      {std::string("\x03\0\0\0\0\0\0\0{}", 10), {"truncated", "3 bytes"}},
      {FileOf("", ""), {"'{'"}},
      {FileOf(" " + good, data), {"'{'"}},
      {FileOf("[]", ""), {"'{'"}},
      {FileOf("{\"w\":", ""), {"header", "not valid JSON"}},
      {FileOf("{}x", ""), {"header", "not valid JSON"}},
      {FileOf("{\"\xff\":1}", ""), {"header", "not valid JSON"}},
      {FileOf(R"({"w":1})", ""), {"tensor 'w'", "dtype, shape and data_offsets"}},
      {FileOf(R"({"w":{"shape":[2],"data_offsets":[0,8]}})", data), {"tensor 'w'", "dtype"}},
      {FileOf(R"({"w":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", data), {"tensor 'w'", "dtype"}},
      {FileOf(R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", data), {"tensor 'w'", "\"F31\""}},
      {FileOf(tensor(R"("shape":2,"data_offsets":[0,8])"), data), {"tensor 'w'", "shape"}},
      {FileOf(tensor(R"("shape":[-2],"data_offsets":[0,8])"), data), {"tensor 'w'", "shape"}},
      {FileOf(tensor(R"("shape":[2.0],"data_offsets":[0,8])"), data), {"tensor 'w'", "shape"}},
      {FileOf(tensor(R"("shape":[18446744073709551615],"data_offsets":[0,8])"), data),
       {"tensor 'w'", "shape"}},
      {FileOf(tensor(R"("shape":[2],"data_offsets":[0])"), data), {"tensor 'w'", "data_offsets"}},
      {FileOf(tensor(R"("shape":[2],"data_offsets":[0,8,8])"), data), {"tensor 'w'", "data_offsets"}},
      {FileOf(tensor(R"("shape":[2],"data_offsets":[8,0])"), data), {"tensor 'w'", "data_offsets"}},
      {FileOf(tensor(R"("shape":[2],"data_offsets":[-8,0])"), data), {"tensor 'w'", "data_offsets"}},
      {FileOf(tensor(R"("shape":[3],"data_offsets":[0,8])"), data), {"tensor 'w'", "12 bytes", "8"}},
      {FileOf(tensor(R"("shape":[1],"data_offsets":[0,8])"), data), {"tensor 'w'", "4 bytes", "8"}},
      // 2^62 elements of 4 bytes are 2^64: 0 in 64 bits.
      {FileOf(tensor(R"("shape":[4611686018427387904],"data_offsets":[0,0])"), ""), {"tensor 'w'", "larger"}},
      {FileOf(tensor(R"("shape":[4294967296,4294967296],"data_offsets":[0,0])"), ""),
       {"tensor 'w'", "larger"}},
      {FileOf(good, data.substr(1)), {"truncated", "tensor 'w'", "byte 8", "only 7"}},
      {FileOf(good, ""), {"truncated", "tensor 'w'"}},
      {FileOf(good, data + "x"), {"end at byte 8", "9"}},
      {FileOf("{}", "x"), {"end at byte 0"}},
      {FileOf(tensor(R"("shape":[2],"data_offsets":[1,9])"), data + "x"), {"tensor 'w'", "hole"}},
      {FileOf(R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],)"
              R"("data_offsets":[3,7]}})",
              "1234567"),
       {"tensor 'w'", "before"}},
      {FileOf(R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],)"
              R"("data_offsets":[0,4]}})",
              "1234"),
       {"before"}},
      {FileOf(R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[2],)"
              R"("data_offsets":[5,7]}})",
              "1234567"),
       {"tensor 'w'", "hole"}},
      {FileOf(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],)"
              R"("data_offsets":[4,8]}})",
              data),
       {"'w'", "twice"}},
      {FileOf(R"({"__metadata__":3})", ""), {"__metadata__"}},
      {FileOf(R"({"__metadata__":{"a":3}})", ""), {"__metadata__", "'a'"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.file.size() > 8 ? c.file.substr(8) : c.file);
    ExpectError({"a.safetensors: "}, [&] { Open(c.file); });
    ExpectError(c.parts, [&] { Open(c.file); });
  }
}

TEST_F(SafetensorsTest, MutatedFilesNeverCrash) {
  std::vector<NamedValues> all = {{"model.a", {3, 5}, std::vector<float>(15, 0.5f)},
                                  {"model.b", {4}, {1, 2, 3, 4}}};
  WriteSafetensors(directory_.path(), "good", AsTensors(all), DType::kFloat32, 1 << 20);
  const std::string good = ReadTextFile(directory_ / "good.safetensors");
  uint64_t header_size = 0;
  std::memcpy(&header_size, good.data(), 8);
  const size_t data_begin = 8 + static_cast<size_t>(header_size);
  std::mt19937 random(4);
  const std::string digits = "0123456789[]{},:\"-e. FB";
  int num_loaded = 0, num_refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string file = good;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % (random() % 8 == 0 ? std::min<size_t>(8, file.size())
                                                      : std::min(data_begin, file.size()));
      switch (random() % 6) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file[at] = digits[random() % digits.size()];
          break;
        case 2:
          file.insert(at, 1, digits[random() % digits.size()]);
          break;
        case 3:
          file.erase(at, 1 + random() % 3);
          break;
        case 4:
          file.resize(random() % 4 == 0 ? at : file.size() - std::min<size_t>(file.size() - 8, random() % 9));
          break;
        case 5:
          file.insert(at, file.substr(random() % file.size(), random() % 40));
          break;
      }
      if (file.size() < 9) break;
    }
    try {
      const SafetensorsReader reader = Open(file);
      for (const auto& [name, entry] : reader.entries()) {
        if (entry.shape.size() > 4 || entry.type->kind != ElementKind::kFloat) continue;
        // What loads is what lies in the file: as many elements as the range holds.
        const std::vector<float> values = Read(reader, name, entry.shape);
        EXPECT_EQ(static_cast<int64_t>(values.size()) * entry.type->bytes, entry.end - entry.begin);
        if (entry.type->name == "F32" && file.size() >= data_begin && !values.empty()) {
          const size_t begin = file.size() - (good.size() - data_begin) + static_cast<size_t>(entry.begin);
          if (reader.entries().size() == 2) {
            EXPECT_EQ(std::memcmp(values.data(), file.data() + begin, values.size() * sizeof(float)), 0);
          }
        }
      }
      ++num_loaded;
    } catch (const Error& e) {
      EXPECT_NE(std::string_view(e.what()).find("a.safetensors"), std::string_view::npos) << e.what();
      ++num_refused;
    }
  }
  EXPECT_GT(num_loaded, 5);  // edits of names and padding
  EXPECT_GT(num_refused, 300);
}

TEST_F(SafetensorsTest, TruncationAtEveryByteIsRefused) {
  std::vector<NamedValues> all = {{"a", {2}, {1, 2}}, {"b", {1}, {3}}};
  WriteSafetensors(directory_.path(), "good", AsTensors(all), DType::kBFloat16, 1 << 20);
  const std::string good = ReadTextFile(directory_ / "good.safetensors");
  for (size_t size = 0; size < good.size(); ++size)
    ExpectError({"a.safetensors"}, [&] { Open(good.substr(0, size)); });
}

TEST_F(SafetensorsTest, AliasesOfTiedWeights) {
  WriteText(
      directory_ / "model.safetensors",
      FileOf(
          R"({"__metadata__":{"format":"pt","model.embed_tokens.weight":"lm_head.weight","gone":"nothing"},)"
          R"("lm_head.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          BytesOf(std::vector<float>{1, 2})));
  const SafetensorsDirectory files(directory_.path(), "model");
  EXPECT_TRUE(files.Has("model.embed_tokens.weight"));
  EXPECT_EQ(Read(files, "model.embed_tokens.weight", {2}), (std::vector<float>{1, 2}));
  EXPECT_EQ(files.Names(), std::vector<std::string>{"lm_head.weight"});
  EXPECT_FALSE(files.Has("gone"));
  EXPECT_FALSE(files.Has("format"));
  ExpectError({directory_.path(), "'gone'", "model.safetensors"}, [&] { Read(files, "gone", {2}); });
}

TEST_F(SafetensorsTest, DirectoriesThatAreNotWhole) {
  const auto open = [&] { SafetensorsDirectory(directory_.path(), "model"); };
  ExpectError({directory_.path(), "model.safetensors", "model.safetensors.index.json"}, open);

  std::vector<NamedValues> all = {{"t0", {2}, {0, 1}}, {"t1", {2}, {2, 3}}};
  WriteSafetensors(directory_.path(), "model", AsTensors(all), DType::kFloat32, 8);
  open();
  const std::string index_path = directory_ / "model.safetensors.index.json";
  const std::string index = ReadTextFile(index_path);
  const std::string first = directory_ / "model-00001-of-00002.safetensors";
  const std::string second = directory_ / "model-00002-of-00002.safetensors";
  const std::string second_text = ReadTextFile(second);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = index;
    changed.replace(changed.find(from), from.size(), to);
    WriteText(index_path, changed);
  };
  with("\"t0\"", "\"t9\"");
  ExpectError({"index.json", "'t9'", first}, open);
  with("\"t0\": \"model-00001", "\"t0\": \"../x/model-00001");
  ExpectError({"index.json", "'t0'", "folder"}, open);
  for (const char* file : {"", ".", "..", "/etc/passwd", "a/b", "model-00001-of-00002.safetensors\\u0000x"}) {
    with("\"t0\": \"model-00001-of-00002.safetensors", "\"t0\": \"" + std::string(file));
    ExpectError({"index.json", "'t0'", "folder"}, open);
  }
  with("\"t0\": \"model-00001-of-00002.safetensors\"", "\"t0\": 1");
  ExpectError({"index.json", "'t0'", "1;"}, open);
  with("\"t0\": \"model-00001", "\"t1\": \"model-00001");
  ExpectError({"index.json", "'t1'", "twice"}, open);
  with("\"weight_map\"", "\"weights\"");
  ExpectError({"index.json", "weight_map"}, open);
  with("{", "");
  ExpectError({"index.json", "JSON"}, open);
  WriteText(index_path, R"({"metadata": {}, "weight_map": {}})");
  ExpectError({index_path, "no tensors"}, open);
  WriteText(index_path, index);
  WriteText(second, second_text.substr(0, second_text.size() - 1));
  ExpectError({second, "truncated"}, open);
  fs::remove(second);
  ExpectError({"index.json", second, "'t1'", "missing"}, open);
  fs::copy(first, second);
  ExpectError({"index.json", "'t1'", second}, open);
  with("\"t1\"", "\"t0\"");
  ExpectError({"'t0'", "twice"}, open);
  WriteText(second, FileOf(R"({"t0":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("t1":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                           "12"));
  WriteText(index_path, index);
  ExpectError({directory_.path(), "'t0'", "two shards"}, open);
  for (const char* header : {"{}", R"({"__metadata__":{"format":"pt"}})"}) {
    WriteText(directory_ / "model.safetensors", FileOf(header, ""));
    ExpectError({directory_ / "model.safetensors", "no tensors"}, open);
  }
}

TEST(SafetensorsData, ARealTrainedModel) {
  const std::string directory = LONGSPAN_SHARED_DATA "/tinystories-656k";
  if (!fs::exists(directory)) GTEST_SKIP() << directory << " is not there";
  const SafetensorsDirectory files(directory, "model");
  EXPECT_EQ(files.Names().size(), 20u);
  EXPECT_EQ(files.Shape("model.embed_tokens.weight"), (std::vector<int64_t>{2048, 128}));
  EXPECT_EQ(Read(files, "model.embed_tokens.weight", {2048, 128}),
            Read(files, "lm_head.weight", {2048, 128}));
}

}  // namespace
}  // namespace longspan
