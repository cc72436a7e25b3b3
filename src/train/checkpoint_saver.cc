#include "train/checkpoint_saver.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/names.h"
#include "core/part_file.h"
#include "train/checkpoint_folder.h"

namespace longspan {
namespace {

constexpr int64_t kChunkElements = 1 << 18;  // converted, summed and written at once
// After so many bytes a file is synced: the disk has work from the beginning, and no sync takes for long.
constexpr int64_t kSyncBytes = int64_t{256} << 20;
constexpr char kSavedMark = '+';  // before an error after which the checkpoint is there
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json",
    "merges.txt",     "added_tokens.json",     "chat_template.jinja"};

std::unique_ptr<Comm> GroupOfAll(Comm& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<Comm> group = world.Subgroup(ranks);
  group->set_recorder(nullptr);  // no part of a step
  return group;
}

Range Common(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

Tensor BytesOf(std::span<char> bytes) { return Tensor(bytes.data(), DType::kByte, {std::ssize(bytes)}); }

}  // namespace

CheckpointSaver::CheckpointSaver(const std::string& folder, ShardedWeights& weights, Snapshot& snapshot,
                                 Comm& world, const SaveOptions& options, const IoHooks& hooks)
    : folder_(folder),
      weights_(weights),
      snapshot_(snapshot),
      group_(GroupOfAll(world)),
      options_(options),
      calls_(*hooks.file_calls),
      made_(kErrorBytes),
      completed_(kErrorBytes),
      background_(std::make_unique<Background>(hooks.before_each)) {
  LayOut("model", ModelParts(weights_.table()), options_.dtype);
  LayOut("optimizer", OptimizerParts(weights_.table(), weights_.has_moments()), DType::kFloat32);
  int64_t begin = 0;
  for (int rank = 0; rank < group_->size(); ++rank) {
    int64_t end = begin + kErrorBytes;
    ForEachPiece(rank, [&](const Saved&, Range) { end += static_cast<int64_t>(sizeof(uint32_t)); });
    records_of_.push_back({begin, end});
    begin = end;
  }
  records_.resize(static_cast<size_t>(begin));
}

CheckpointSaver::~CheckpointSaver() {
  background_.reset();
  if (!step_ || !is_first()) return;
  try {
    RemoveTemporaries(folder_);
  } catch (const std::exception&) {  // an error has ended the run already; the next start removes them
  }
}

void CheckpointSaver::LayOut(const std::string& stem, const std::vector<SavedPart>& parts, DType dtype) {
  std::vector<SafetensorsSource> sources;
  const size_t first = tensors_.size();
  ForEachTensor(weights_.table(), parts, [&](const SavedPart& part, const StoredTensor& stored) {
    sources.push_back(
        {.name = stored.name + part.suffix, .type = ElementTypeOf(dtype), .shape = stored.shape, .read = {}});
    tensors_.push_back({.part = part,
                        .elements = {stored.offset, stored.offset + stored.num_elements},
                        .type = ElementTypeOf(dtype),
                        .file = 0,
                        .offset = 0});
  });
  SafetensorsLayout layout = LayOutSafetensors(stem, sources, {}, options_.max_shard_bytes);
  for (SafetensorsLayout::File& file : layout.files) {
    for (size_t i = file.begin; i < file.end; ++i) {
      tensors_[first + i].file = files_.size();
      tensors_[first + i].offset = layout.offsets[i];
    }
    files_.push_back(std::move(file));
  }
  layout.files.clear();
  layouts_.push_back(std::move(layout));
}

template <class F>
void CheckpointSaver::ForEachPiece(int rank, F f) const {
  for (const Saved& tensor : tensors_) {
    const Range piece = Common(tensor.elements, weights_.ShareOf(rank, tensor.part.unit));
    if (piece.begin < piece.end) f(tensor, piece);
  }
}

// From the first rank to all.
Event CheckpointSaver::Share(std::vector<char>& text, const Event& after) {
  std::vector<Range> pieces(static_cast<size_t>(group_->size()), Range{kErrorBytes, kErrorBytes});
  pieces[0] = {0, kErrorBytes};
  const Tensor all = BytesOf(text);
  return group_->AllGather(is_first() ? all : all.Rows(0, 0), all, pieces, after);
}

// Whatever f throws becomes the error.
template <class F>
void CheckpointSaver::Try(ErrorText error, F f) const {
  try {
    f();
  } catch (const std::exception& e) {
    const std::string text =
        Shortened(fmt::format("rank {}: {}", group_->rank(), e.what()), kErrorBytes - 16);
    std::memcpy(error.data(), text.data(), std::min(text.size(), error.size() - 1));
  }
}

void CheckpointSaver::Start(const CheckpointState& state) {
  CHECK(!step_);
  snapshot_.Take();
  step_ = state.step;
  name_ = CheckpointName(state.step);
  temporary_ = TemporaryCheckpoint(folder_, name_);
  state_json_ = WriteCheckpointState(state, OptimizerName(weights_.has_moments()));
  checksums_.clear();
  for (std::vector<char>* bytes : {&made_, &records_, &completed_}) std::ranges::fill(*bytes, '\0');

  const Range mine = records_of_[static_cast<size_t>(group_->rank())];
  const std::span<char> record =
      std::span(records_).subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.size()));
  const auto make = [this] { Try(made_, [&] { MakeFiles(); }); };
  const auto write = [this, record] {
    std::vector<uint32_t> crcs(static_cast<size_t>(record.size() - kErrorBytes) / sizeof(uint32_t));
    if (made_[0] == '\0') Try(record.first(kErrorBytes), [&] { WriteShare(crcs); });
    std::memcpy(record.data() + kErrorBytes, crcs.data(), crcs.size() * sizeof(uint32_t));
  };
  Event ready;
  if (is_first()) ready = background_->Post(make);
  const Event made = Share(made_, ready);
  const Event written = background_->Post(write, made);
  const Event all_written = group_->AllGather(BytesOf(record), BytesOf(records_), records_of_, written);
  done_ =
      Share(completed_, is_first() ? background_->Post([this] { Complete(); }, all_written) : all_written);
}

std::optional<CheckpointSaver::Ended> CheckpointSaver::Poll() {
  return step_ && done_.Done() ? Wait() : std::nullopt;
}

std::optional<CheckpointSaver::Ended> CheckpointSaver::Wait() {
  if (!step_) return std::nullopt;
  done_.Wait();
  const bool is_saved = completed_[0] == '\0' || completed_[0] == kSavedMark;
  const Ended ended = {.step = *step_,
                       .error = completed_.data() + (completed_[0] == kSavedMark ? 1 : 0),
                       .is_saved = is_saved};
  step_.reset();
  return ended;
}

void CheckpointSaver::WriteText(const std::string& name, std::string_view text) {
  WritePartFile(PathOf(name), text, calls_);
  checksums_[name] = ChecksumOf(text);
}

void CheckpointSaver::MakeFiles() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  Require(ExitCode::kResource, !error, "cannot make {}: {}", folder_, error.message());
  RemoveTemporaries(folder_);
  MakePrivateDirectory(temporary_);
  for (const SafetensorsLayout::File& file : files_) {
    PartFile part(PathOf(file.name), file.num_bytes, calls_);
    part.Write(0, file.head.data(), file.head.size());
    part.Sync();  // this rank may have no share of it
    checksums_[file.name] = ChecksumOf(file.head);
  }
  for (const SafetensorsLayout& layout : layouts_)
    if (!layout.index_name.empty()) WriteText(layout.index_name, layout.index_json);
  WriteText("config.json", options_.config_json);
  const auto copy = [&](const std::string& from, const char* name) {
    if (!from.empty() && Exists(from + "/" + name)) WriteText(name, MappedFile(from + "/" + name).text());
  };
  for (const char* name : kTokenizerFiles) copy(options_.tokenizer_directory, name);
  copy(options_.model_directory, kGenerationConfig);
  WriteText("state.json", state_json_);
}

// Each file is synced once its last piece is written: by each process, as they may be on several hosts.
void CheckpointSaver::WriteShare(std::span<uint32_t> crcs) {
  std::optional<PartFile> part;
  size_t file = 0, num_pieces = 0;
  int64_t unsynced = 0;
  std::vector<std::byte> chunk;
  ForEachPiece(group_->rank(), [&](const Saved& tensor, Range piece) {
    if (!part || file != tensor.file) {
      if (part) part->Sync();
      unsynced = 0;
      file = tensor.file;
      part.emplace(PathOf(files_[file].name), calls_);
    }
    const int64_t size = tensor.type->bytes;
    const float* const values = snapshot_.Of(tensor.part.unit, tensor.part.tensor).data<float>() +
                                (piece.begin - weights_.Share(tensor.part.unit).begin);
    int64_t offset = tensor.offset + (piece.begin - tensor.elements.begin) * size;
    Checksum sum;
    for (int64_t first = 0; first < piece.size(); first += kChunkElements) {
      const std::span<const float> now(values + first,
                                       static_cast<size_t>(std::min(kChunkElements, piece.size() - first)));
      const void* data = now.data();
      const size_t bytes = now.size() * static_cast<size_t>(size);
      if (tensor.type != ElementTypeOf(DType::kFloat32)) {
        chunk.resize(bytes);
        FromFloat32(*tensor.type, now, chunk.data());
        data = chunk.data();
      }
      sum.Add(data, bytes);
      part->Write(offset, data, bytes);
      offset += static_cast<int64_t>(bytes);
      unsynced += static_cast<int64_t>(bytes);
      if (unsynced < kSyncBytes) continue;
      part->Sync();
      unsynced = 0;
    }
    crcs[num_pieces++] = sum.crc;
  });
  if (part) part->Sync();
}

std::string CheckpointSaver::FirstError() const {
  if (made_[0] != '\0') return made_.data();
  for (const Range& record : records_of_)
    if (const char* const error = records_.data() + record.begin; *error != '\0') return error;
  return "";
}

// Of the large files: of their heads, and then of every piece in its place.
void CheckpointSaver::AddChecksums() {
  std::vector<const char*> next;  // each rank's next CRC
  for (const Range& record : records_of_) next.push_back(records_.data() + record.begin + kErrorBytes);
  const std::vector<int> ranks = weights_.RanksInOrder();
  for (const Saved& tensor : tensors_) {
    for (const int rank : ranks) {
      const Range piece = Common(tensor.elements, weights_.ShareOf(rank, tensor.part.unit));
      if (piece.begin >= piece.end) continue;
      Checksum sum = {.bytes = piece.size() * tensor.type->bytes};
      std::memcpy(
          &sum.crc,
          std::exchange(next[static_cast<size_t>(rank)], next[static_cast<size_t>(rank)] + sizeof(sum.crc)),
          sizeof(sum.crc));
      checksums_[files_[tensor.file].name].Add(sum);
    }
  }
  for (const SafetensorsLayout::File& file : files_) CHECK(checksums_[file.name].bytes == file.num_bytes);
}

// On the first rank, once all have written.
void CheckpointSaver::Complete() {
  if (const std::string error = FirstError(); !error.empty()) {
    std::memcpy(completed_.data(), error.data(), error.size());
  } else {
    Try(completed_, [&] {
      AddChecksums();
      WritePartFile(PathOf(kChecksumsFile), WriteChecksums(checksums_), calls_);
      OpenToUmask(temporary_);
      SyncDirectory(temporary_, calls_);
      PlaceCheckpoint(folder_, name_, calls_);
    });
    if (completed_[0] == '\0') {
      const std::span<char> text = completed_;
      Try(text.subspan(1), [&] {
        RemoveTemporaries(folder_);  // the one that was replaced
        PruneCheckpoints(folder_, name_, options_.max_num_to_keep, calls_);
      });
      if (text[1] != '\0') text[0] = kSavedMark;
      return;
    }
  }
  try {
    RemoveTemporaries(folder_);
  } catch (const std::exception&) {  // what is said is the first error; the next save tries again
  }
}

}  // namespace longspan
