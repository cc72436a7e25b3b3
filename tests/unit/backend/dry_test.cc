// A dry run takes what a real one takes and touches nothing: the same calls on both backends.
#include <array>
#include <chrono>
#include <thread>

#include "backend/chunks.h"
#include "backend/profiled_backend.h"
#include "core/clock.h"
#include "core/target.h"
#include "core/trace_recorder.h"
#include "core/work_log.h"
#include "unit/backend/backend_testing.h"

namespace longspan::test {
namespace {

class DryTest : public TargetTest {};
LONGSPAN_FOR_TARGETS(DryTest);

// Calls every operation, on tensors of the backend's own arena: a dry backend's cannot be touched.
void CallEverything(Backend& backend, DType dtype, int64_t tokens) {
  constexpr int64_t kWidth = 24, kVocabulary = 40, kHeads = 4, kKvHeads = 2, kHeadWidth = 6,
                    kFeedForward = 36;
  Arena& arena = backend.arena();
  const Arena::Scope scope(arena);
  const auto make = [&](DType type, std::initializer_list<int64_t> shape) {
    const Tensor x = arena.Allocate("operand", type, shape);
    if (!backend.dry()) std::memset(x.raw(), 0, static_cast<size_t>(x.num_bytes()));
    return x;
  };
  const DType f32 = DType::kFloat32;
  const Tensor ids = make(DType::kInt32, {tokens}), table = make(dtype, {kVocabulary, kWidth});
  const Tensor x = make(dtype, {tokens, kWidth}), y = make(dtype, {tokens, kWidth}),
               z = make(dtype, {tokens, kWidth});
  backend.Zero(x);
  backend.Copy(x, y);
  backend.Cast(x, make(f32, {tokens, kWidth}));
  backend.Add(x, y);
  backend.Scale(2, y);
  backend.Embedding(ids, table, x);
  backend.EmbeddingBackward(ids, x, -1, make(f32, {kVocabulary, kWidth}));
  const Tensor gain = make(dtype, {kWidth});
  backend.RmsNorm(x, {gain}, y);
  backend.AddRmsNorm(x, y, {gain}, z);
  backend.RmsNormBackward(x, {gain}, make(f32, {tokens, kWidth}), z, make(f32, {kWidth}), true);
  backend.AddBias(gain, y);
  backend.AddBiasBackward(y, make(f32, {kWidth}));

  const Tensor w = make(dtype, {kFeedForward, kWidth}), gate = make(dtype, {tokens, kFeedForward});
  const Tensor up = make(dtype, {tokens, kFeedForward}), out = make(dtype, {tokens, kFeedForward});
  backend.Matmul({.a = x, .b = w, .c = gate, .transpose_b = true});
  backend.Matmul({.a = gate, .b = w, .c = y});
  if (const int64_t bytes = backend.PackedBytes(w); bytes > 0) {
    const Tensor packed = make(DType::kByte, {bytes});
    backend.Pack(w, packed);
    backend.Matmul({.a = x, .b = w, .c = gate, .transpose_b = true, .packed_b = packed});
    backend.Matmul({.a = gate, .b = w, .c = y, .packed_b = packed});
  }
  backend.Matmul(
      {.a = gate, .b = x, .c = make(f32, {kFeedForward, kWidth}), .transpose_a = true, .accumulate = true});
  for (const GateActivation activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
    backend.Glu(activation, gate, up, out);
    backend.GluBackward(activation, gate, up, out, make(dtype, {tokens, kFeedForward}),
                        make(dtype, {tokens, kFeedForward}));
  }

  const Tensor q = make(dtype, {tokens, kHeads, kHeadWidth}), k = make(dtype, {tokens, kKvHeads, kHeadWidth});
  const Tensor v = make(dtype, {tokens, kKvHeads, kHeadWidth}),
               context = make(dtype, {tokens, kHeads, kHeadWidth});
  const RopeTables tables{make(f32, {1, kHeadWidth / 2, 2}),
                          make(f32, {RopeTables::kPeriod, kHeadWidth / 2, 2})};
  backend.Rope(q, make(DType::kInt64, {tokens}), tables, false);
  backend.CopyHeads(k, 0, q, 1, 2);
  backend.AddHeads(k, 0, q, 1, 2);
  const std::array documents = {Range{0, tokens}};
  const Mask mask = MakeMask({}, documents);
  const std::array<int32_t, kHeads> kv_of = {0, 0, 1, 1};
  const Tensor sinks = make(f32, {kHeads}), key_mean = make(f32, {kKvHeads, kHeadWidth});
  const AttentionCall call{.mask = &mask,
                           .query_spans = documents,
                           .key_spans = documents,
                           .kv_of = kv_of,
                           .scale = 0.5f,
                           .soft_cap = 3,
                           .sinks = sinks};
  const Tensor lse = make(f32, {tokens, kHeads}), delta = make(f32, {tokens, kHeads});
  const AttentionState state{make(f32, {tokens, kHeads, kHeadWidth}), make(f32, {tokens, kHeads}),
                             make(f32, {tokens, kHeads})};
  backend.AttentionForward(call, q, k, v, true, true, {}, context, lse);
  backend.AttentionForward(call, q, k, v, true, false, state, context, lse);
  backend.AttentionForward(call, q, k, v, false, true, state, context, lse);
  backend.AttentionDelta(context, context, delta);
  backend.AttentionBackward(call, q, k, v, context, lse, delta, make(f32, {tokens, kHeads, kHeadWidth}),
                            make(f32, {tokens, kKvHeads, kHeadWidth}),
                            make(f32, {tokens, kKvHeads, kHeadWidth}));
  backend.AttentionSinksBackward(sinks, lse, delta, make(f32, {kHeads}));
  backend.MeanOfRows(k, documents, tokens, key_mean);

  const Tensor logits = make(f32, {tokens, kVocabulary});
  backend.CrossEntropy(logits, ids);
  backend.TokenLosses(logits, ids, make(f32, {tokens}), make(DType::kInt32, {tokens}));
  const Tensor dlogits = make(dtype, {tokens, kVocabulary});
  backend.CrossEntropyBackward(logits, ids, 1, dlogits);
  backend.SoftCap(30, logits);
  backend.SoftCapBackward(logits, 30, dlogits);
  const Tensor grad = make(f32, {kVocabulary * kWidth}), master = make(f32, {kVocabulary * kWidth});
  backend.SumOfSquares(grad);
  backend.AdamW({}, grad, master, make(f32, {kVocabulary * kWidth}), make(f32, {kVocabulary * kWidth}),
                make(DType::kBFloat16, {kVocabulary * kWidth}));
  backend.Sgd(1, 1, grad, master, Tensor());
}

TEST_P(DryTest, TakesTheSameMemoryAndCountsTheSameProducts) {
  for (const int threads : {1, 2}) {
    for (const int64_t tokens : {1, 70, 300}) {
      const auto real = Make(threads), dry = MakeDry(threads);
      CallEverything(*real, dtype(), tokens);
      CallEverything(*dry, dtype(), tokens);
      EXPECT_EQ(real->arena().peak_bytes(), dry->arena().peak_bytes());
      EXPECT_EQ(real->arena().peak_by_name(), dry->arena().peak_by_name());
      EXPECT_EQ(real->matmul_flops(), dry->matmul_flops());
      EXPECT_GT(dry->matmul_flops(), 0);
      EXPECT_EQ(dry->arena().used_bytes(), 0);
    }
  }
}

// Each operation's own workspace, which the peak of a whole step might hide.
TEST_P(DryTest, EachWorkspaceIsTheSame) {
  const auto peak = [&](bool dry, const auto& run) {
    const auto backend = dry ? MakeDry(2) : Make(2);
    const int64_t rows = 300, width = 50;
    const DType f32 = DType::kFloat32;
    Arena operands(dry ? Arena::Mode::kMeasure : Arena::Mode::kReal);
    run(*backend, operands.Allocate("x", dtype(), {rows, width}),
        operands.Allocate("y", dtype(), {rows, width}), operands.Allocate("f32", f32, {rows, width}),
        operands.Allocate("ids", DType::kInt32, {rows}));
    return backend->arena().peak_bytes();
  };
  const auto expect_equal = [&](const char* what, bool takes_some, const auto& run) {
    const int64_t real = peak(false, run);
    EXPECT_EQ(real, peak(true, run)) << what;
    EXPECT_EQ(real > 0, takes_some) << what;
  };
  expect_equal("norm", true, [](Backend& b, Tensor x, Tensor y, Tensor wide, Tensor) {
    b.RmsNormBackward(x, {x.Rows(0, 1).Reshape({50})}, wide, y, wide.Rows(0, 1).Reshape({50}), false);
  });
  expect_equal("bias", true, [](Backend& b, Tensor x, Tensor, Tensor wide, Tensor) {
    b.AddBiasBackward(x, wide.Rows(0, 1).Reshape({50}));
  });
  expect_equal("loss", true,
               [](Backend& b, Tensor, Tensor, Tensor wide, Tensor ids) { b.CrossEntropy(wide, ids); });
  expect_equal("squares", true,
               [](Backend& b, Tensor, Tensor, Tensor wide, Tensor) { b.SumOfSquares(wide); });
  expect_equal("sinks", true, [](Backend& b, Tensor, Tensor, Tensor wide, Tensor) {
    const Tensor sinks = wide.Rows(0, 1).Reshape({50});
    b.AttentionSinksBackward(sinks, wide, wide, sinks);
  });
  expect_equal("mean", true, [](Backend& b, Tensor x, Tensor, Tensor wide, Tensor) {
    const Range rows[] = {{0, 7}, {9, 300}};
    b.MeanOfRows(x.Reshape({300, 5, 10}), rows, 300, wide.Rows(0, 1).Reshape({5, 10}));
  });
  expect_equal("copy", false, [](Backend& b, Tensor x, Tensor y, Tensor, Tensor) { b.Copy(x, y); });
}

// What a profiled backend says of each operation is what a dry run says; it takes the same memory as the one
// behind it, and reports nothing while its recorder is off.
TEST_P(DryTest, AProfiledOneReportsTheSameWork) {
  WorkLog log;
  const auto dry = cpu::MakeDryBackend(target(), 1, &log), plain = Make(1);
  TraceRecorder recorder(3, 1000);
  const auto profiled = MakeProfiledBackend(Make(1), recorder);
  CallEverything(*profiled, dtype(), 70);
  EXPECT_TRUE(recorder.spans().empty());

  recorder.Start();
  const double begin = Now();
  CallEverything(*profiled, dtype(), 70);
  const double end = Now();
  CallEverything(*dry, dtype(), 70);
  for (int i = 0; i < 2; ++i) CallEverything(*plain, dtype(), 70);
  const std::vector<TraceSpan> spans = recorder.spans();
  ASSERT_EQ(spans.size(), log.entries().size());
  double last = begin;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Work& work = log.entries()[i].work;
    EXPECT_EQ(spans[i].rank, 3);
    EXPECT_EQ(spans[i].lane, TraceLane::kCompute);
    EXPECT_EQ(spans[i].name, work.name);
    EXPECT_EQ(spans[i].flops, work.flops) << work.name;
    EXPECT_EQ(spans[i].bytes, work.bytes) << work.name;
    EXPECT_GE(spans[i].begin, last);
    EXPECT_GE(spans[i].end, spans[i].begin);
    last = spans[i].end;
  }
  EXPECT_LE(last, end);
  EXPECT_EQ(profiled->matmul_flops(), plain->matmul_flops());
  EXPECT_EQ(profiled->arena().peak_by_name(), plain->arena().peak_by_name());
  EXPECT_EQ(profiled->Describe(), plain->Describe());
}

TEST(ProfiledBackendTest, ComputesTheSame) {
  TraceRecorder recorder(0, 1000);
  const auto plain = MakeCpuBackend(1), profiled = MakeProfiledBackend(MakeCpuBackend(1), recorder);
  recorder.Start();
  std::mt19937_64 random(1);
  const Guarded a(DType::kFloat32, {7, 5}, Random(random, 35, DType::kFloat32)),
      b(DType::kFloat32, {5, 9}, Random(random, 45, DType::kFloat32)), x(DType::kFloat32, {7, 9}),
      y(DType::kFloat32, {7, 9});
  const Guarded targets(DType::kInt32, {7}, {0, 3, 8, 2, 1, 5, 7});
  plain->Matmul({.a = a, .b = b, .c = x});
  profiled->Matmul({.a = a, .b = b, .c = y});
  EXPECT_EQ(x.Get(), y.Get());
  const double loss = plain->CrossEntropy(x, targets);
  EXPECT_GT(loss, 0);
  EXPECT_EQ(profiled->CrossEntropy(y, targets), loss);
  EXPECT_EQ(profiled->SumOfSquares(a), plain->SumOfSquares(a));
  EXPECT_GT(profiled->SumOfSquares(a), 0);
  EXPECT_FALSE(profiled->dry());
}

// A model that no machine could hold is measured in a moment.
TEST(DryBackendTest, SizesBeyondAnyMachine) {
  const auto dry = MakeDryBackend(2);
  EXPECT_TRUE(dry->dry());
  constexpr int64_t kTokens = 14'000'000, kWidth = 8192;
  const Arena::Scope scope(dry->arena());
  const Tensor x = dry->arena().Allocate("x", DType::kBFloat16, {kTokens, kWidth});
  const Tensor y = dry->arena().Allocate("y", DType::kBFloat16, {kTokens, kWidth});
  const Tensor w = dry->arena().Allocate("w", DType::kBFloat16, {kWidth, kWidth});
  dry->Matmul({.a = x, .b = w, .c = y, .transpose_b = true});
  dry->RmsNorm(x, {w.Rows(0, 1).Reshape({kWidth})}, y);
  EXPECT_EQ(dry->matmul_flops(), 2.0 * kTokens * kWidth * kWidth);
}

// Products and allowed pairs are reported exactly, what was reported adds up to what is counted.
TEST(DryBackendTest, ReportsItsWork) {
  WorkLog log;
  const auto dry = MakeDryAccelerator(&log);
  const Arena::Scope scope(dry->arena());
  const auto make = [&](DType dtype, std::initializer_list<int64_t> shape) {
    return dry->arena().Allocate("x", dtype, shape);
  };
  const Tensor x = make(DType::kBFloat16, {10, 6}), w = make(DType::kBFloat16, {5, 6}),
               y = make(DType::kFloat32, {10, 5});
  dry->Matmul({.a = x, .b = w, .c = y, .transpose_b = true, .accumulate = true});
  dry->Glu(GateActivation::kSilu, x, x, x);

  const Mask mask = MakeMask({}, Documents{{0, 6}, {6, 10}});
  const std::array rows = {Range{4, 8}};
  const std::array keys = {Range{8, 10}, Range{2, 6}};
  const std::array<int32_t, 4> kv_of = {0, 0, 1, 1};
  const AttentionCall call = {.mask = &mask, .query_spans = rows, .key_spans = keys, .kv_of = kv_of};
  const Tensor q = make(DType::kBFloat16, {4, 4, 8}), k = make(DType::kBFloat16, {6, 2, 8}),
               v = make(DType::kBFloat16, {6, 2, 16}), out = make(DType::kBFloat16, {4, 4, 16});
  const Tensor lse = make(DType::kFloat32, {4, 4}), state = make(DType::kFloat32, {4, 4, 16});
  dry->AttentionForward(call, q, k, v, true, false, {state, lse, lse}, out, lse);
  dry->AttentionBackward(call, q, k, v, out, lse, lse, make(DType::kFloat32, {4, 4, 8}),
                         make(DType::kFloat32, {6, 2, 8}), make(DType::kFloat32, {6, 2, 16}));

  const auto entries = log.entries();
  ASSERT_EQ(entries.size(), 4u);
  const Work &product = entries[0].work, &glu = entries[1].work;
  EXPECT_EQ(product.kind, WorkKind::kMatmul);
  EXPECT_EQ(product.flops, 2.0 * 10 * 5 * 6);
  EXPECT_EQ(product.bytes, 10 * 6 * 2 + 5 * 6 * 2 + 2 * 10 * 5 * 4);
  EXPECT_EQ(product.flops, dry->matmul_flops());
  EXPECT_EQ(glu.kind, WorkKind::kPointwise);
  EXPECT_EQ(glu.bytes, 3 * 10 * 6 * 2);
  const Work &forward = entries[2].work, &backward = entries[3].work;
  // Rows 4 and 5 see keys 2 … 5 up to their own; rows 6 and 7 none of these.
  EXPECT_EQ(forward.kind, WorkKind::kAttentionForward);
  EXPECT_EQ(forward.pairs, 3 + 4);
  EXPECT_EQ(forward.flops, 2.0 * 7 * 4 * (8 + 16));
  EXPECT_EQ(forward.rows, 4);
  EXPECT_EQ(forward.keys, 6);
  EXPECT_EQ(forward.heads, 4);
  EXPECT_EQ(forward.width, 8);
  EXPECT_EQ(forward.state_bytes, 4 * 4 * (16 + 2) * 4);  // begun here, so not read
  EXPECT_EQ(backward.kind, WorkKind::kAttentionBackward);
  EXPECT_EQ(backward.pairs, 7);
  EXPECT_EQ(backward.flops, 2.0 * 7 * 4 * (3 * 8 + 2 * 16));
}

// Another mask in the place of the first has pairs of its own.
TEST(DryBackendTest, CountsThePairsOfTheMaskOfEachCall) {
  WorkLog log;
  const auto dry = MakeDryAccelerator(&log);
  const Arena::Scope scope(dry->arena());
  const Tensor q = dry->arena().Allocate("q", DType::kFloat32, {4, 1, 2});
  const Tensor lse = dry->arena().Allocate("lse", DType::kFloat32, {4, 1});
  const std::array rows = {Range{0, 4}};
  const std::array<int32_t, 1> kv_of = {0};
  Mask mask;
  for (const Documents& documents : {Documents{{0, 4}}, Documents{{0, 2}, {2, 4}}, Documents{{0, 4}}}) {
    mask = MakeMask({}, documents);
    dry->AttentionForward({.mask = &mask, .query_spans = rows, .key_spans = rows, .kv_of = kv_of}, q, q, q,
                          true, true, {}, q, lse);
  }
  ASSERT_EQ(log.entries().size(), 3u);
  EXPECT_EQ(log.entries()[0].work.pairs, 10);
  EXPECT_EQ(log.entries()[1].work.pairs, 6);
  EXPECT_EQ(log.entries()[2].work.pairs, 10);
}

// Equal chunks are seen once and count as often as they are; memory and products are those of all.
TEST(DryBackendTest, EqualChunksAreSeenOnce) {
  WorkLog log;
  const auto dry = MakeDryAccelerator(&log);
  const auto real = cpu::MakeCpuBackend(CpuTarget::kScalar, 1);
  for (const int64_t rows : {10, 9, 3, 2, 1}) {
    const auto run = [&](Backend& backend) {
      std::vector<Range> chunks;
      const double before = backend.matmul_flops();
      const Tensor w = backend.arena().Allocate("w", DType::kFloat32, {2, 2});
      if (!backend.dry()) std::memset(w.raw(), 0, static_cast<size_t>(w.num_bytes()));
      ForEachChunk(backend, rows, 3, [&](int64_t begin, int64_t end) {
        chunks.push_back({begin, end});
        const Tensor x = backend.arena().Allocate("x", DType::kFloat32, {end - begin, 2});
        if (!backend.dry()) std::memset(x.raw(), 0, static_cast<size_t>(x.num_bytes()));
        const Tensor y = backend.arena().Allocate("y", DType::kFloat32, {end - begin, 2});
        backend.Matmul({.a = x, .b = w, .c = y});
      });
      EXPECT_EQ(backend.matmul_flops() - before, static_cast<double>(2 * 2 * 2 * rows));
      return chunks;
    };
    const Arena::Scope dry_scope(dry->arena()), real_scope(real->arena());
    const std::vector<Range> all = run(*real), seen = run(*dry);
    EXPECT_EQ(std::ssize(all), (rows + 2) / 3);
    EXPECT_EQ(all.back().end, rows);
    EXPECT_EQ(std::ssize(seen), rows / 3 > 0 ? 1 + (rows % 3 > 0) : 1);
    EXPECT_EQ(dry->arena().peak_by_name().at("x"), real->arena().peak_by_name().at("x"));
    EXPECT_EQ(dry->arena().peak_by_name().at("y"), real->arena().peak_by_name().at("y"));
  }
  EXPECT_EQ(log.entries()[0].work.times, 3);  // of ten rows
  EXPECT_EQ(log.entries()[1].work.times, 1);
}

TEST(DryBackendTest, FailsWhereARealRunWould) {
  const auto dry = MakeDryBackend(1);
  const Tensor x = dry->arena().Allocate("x", DType::kFloat32, {3, 4});
  EXPECT_THROW(dry->Matmul({x, x, x}), std::logic_error);
  EXPECT_THROW(dry->Glu(GateActivation::kSilu, x, x, x.Rows(0, 2)), std::logic_error);
  const Tensor heads = x.Reshape({3, 2, 2}), sums = x.Reshape({6, 2}).Rows(0, 3);
  EXPECT_THROW(dry->MeanOfRows(heads, std::array{Range{0, 4}}, 4, sums.Rows(0, 2)), std::logic_error);
  EXPECT_THROW(dry->AttentionSinksBackward(x, sums, sums, x), std::logic_error);
  // A call is refused for what it carries.
  const Mask mask;
  const std::array rows = {Range{0, 3}};
  const std::array<int32_t, 2> kv_of = {0, 1};
  const auto attend = [&](float soft_cap, Tensor sinks, Tensor key_mean) {
    dry->AttentionForward({.mask = &mask,
                           .query_spans = rows,
                           .key_spans = rows,
                           .kv_of = kv_of,
                           .soft_cap = soft_cap,
                           .sinks = sinks,
                           .key_mean = key_mean},
                          heads, heads, heads, true, true, {}, heads, sums);
  };
  const Tensor two = sums.Rows(0, 1).Reshape({2}), mean = sums.Rows(0, 2);
  attend(1, two, {});
  attend(0, {}, mean);
  EXPECT_THROW(attend(-1, two, {}), std::logic_error);
  EXPECT_THROW(attend(std::numeric_limits<float>::infinity(), two, {}), std::logic_error);
  EXPECT_THROW(attend(0, mean, {}), std::logic_error);
  EXPECT_THROW(attend(0, {}, two), std::logic_error);
  EXPECT_THROW(attend(1, {}, mean), std::logic_error);
  EXPECT_THROW(attend(0, two, mean), std::logic_error);
}

// Waiting is what a run reports as communication that was not hidden.
TEST(BackendTest, WaitingIsAccountedFor) {
  const auto backend = MakeDryBackend(1);
  backend->Wait(Event());
  EXPECT_EQ(backend->wait_seconds(), 0);
  EventSource late;
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    late.Set();
  });
  backend->Wait(late.event());
  setter.join();
  EXPECT_GT(backend->wait_seconds(), 0.01);
  const double before = backend->wait_seconds();
  EventSource failed;
  failed.Fail([] { throw Error("the disk is full"); });
  EXPECT_THROW(backend->Wait(failed.event()), Error);
  EXPECT_EQ(backend->wait_seconds(), before);
}

TEST(BackendTest, DescribesItself) {
  EXPECT_EQ(cpu::MakeCpuBackend(CpuTarget::kScalar, 1)->Describe(), "cpu, scalar, 1 thread");
  EXPECT_EQ(cpu::MakeCpuBackend(CpuTarget::kScalar, 2)->Describe(), "cpu, scalar, 2 threads");
}

}  // namespace
}  // namespace longspan::test
