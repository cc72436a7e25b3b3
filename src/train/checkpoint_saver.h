// CheckpointSaver: writes checkpoints while training goes on, by all ranks at once.
//
// A save begins with a snapshot of each rank's share. In the background then the first rank makes the folder
// with its small files, and the large ones at their full size; every rank writes its share into these, at its
// place, with the checksums of what it writes; and once all have told each other that they are done, and how,
// the first rank writes checksums.json, gives the checkpoint its name and removes old ones. The files are the
// same to the byte for any number of ranks and any split of the weights. An error is a text that travels with
// these messages: all ranks hear how a save has ended, and that it was the same for all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "core/background.h"
#include "core/event.h"
#include "core/file_calls.h"
#include "train/checkpoint_parts.h"
#include "train/checkpoint_state.h"
#include "train/checksums.h"
#include "train/safetensors.h"
#include "train/snapshot.h"
#include "train/weights.h"

namespace longspan {

struct SaveOptions {
  DType dtype = DType::kFloat32;  // of model.safetensors; the masters are always saved in f32 as well
  int64_t max_shard_bytes = int64_t{5} << 30;
  int64_t max_num_to_keep = 0;           // checkpoints in the folder; 0: all
  std::string config_json = {};          // its text
  std::string tokenizer_directory = {};  // tokenizer files are copied from here; empty: none
  std::string model_directory = {};      // generation_config.json likewise
};

class CheckpointSaver {
 public:
  struct Ended {
    int64_t step = 0;
    std::string error;     // what failed, with file and rank; empty: nothing
    bool is_saved = true;  // the checkpoint is there; with an error, older ones that were to go are as well
  };

  // Of the weights of a run's ranks, which are `world`, into its folder checkpoints/. `snapshot` is of them.
  // Collective; what it refers to outlives it. One run at a time saves into a folder.
  CheckpointSaver(const std::string& folder, ShardedWeights& weights, Snapshot& snapshot, Comm& world,
                  const SaveOptions& options, const IoHooks& hooks);
  // What is not complete is removed.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Begins to save what the weights are now; they may change as soon as this returns. The save before must
  // have been waited for. Collective. A checkpoint of the same step (of a run that went back) is replaced as
  // a whole; a save that fails leaves the checkpoints before, and `latest`, as they were, and nothing
  // half-written.
  void Start(const CheckpointState& state);
  // How the save that was begun has ended, once; nothing if there is none, or (Poll) if it goes on. Throws
  // PeerFailed where the run has ended meanwhile.
  std::optional<Ended> Poll();
  std::optional<Ended> Wait();

 private:
  static constexpr int64_t kErrorBytes = 1024;
  using ErrorText = std::span<char>;  // of kErrorBytes, zeros after its end; all zeros: no error

  // A tensor in a file.
  struct Saved {
    SavedPart part;
    Range elements;  // of its unit
    const ElementType* type;
    size_t file;
    int64_t offset;
  };
  void LayOut(const std::string& stem, const std::vector<SavedPart>& parts, DType dtype);
  // Calls f(tensor, elements of it in the share of `rank`) where there are any.
  template <class F>
  void ForEachPiece(int rank, F f) const;

  Event Share(std::vector<char>& text, const Event& after);
  template <class F>
  void Try(ErrorText error, F f) const;
  void MakeFiles();
  void WriteShare(std::span<uint32_t> crcs);
  void Complete();
  void AddChecksums();
  std::string FirstError() const;
  std::string PathOf(const std::string& name) const { return temporary_ + "/" + name; }
  void WriteText(const std::string& name, std::string_view text);
  bool is_first() const { return group_->rank() == 0; }

  const std::string folder_;
  ShardedWeights& weights_;
  Snapshot& snapshot_;
  const std::unique_ptr<Comm> group_;  // for these messages alone: they begin late
  const SaveOptions options_;
  const FileCalls& calls_;

  std::vector<SafetensorsLayout::File> files_;
  std::vector<SafetensorsLayout> layouts_;
  std::vector<Saved> tensors_;
  std::vector<Range> records_of_;  // bytes of each rank's record: an error and the CRCs of its pieces

  // Of the save that goes on.
  std::optional<int64_t> step_;
  std::string name_, temporary_, state_json_;
  std::vector<char> made_, records_, completed_;
  Checksums checksums_;
  Event done_;

  std::unique_ptr<Background> background_;
};

}  // namespace longspan
