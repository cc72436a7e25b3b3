#include "train/convert.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/directory_writer.h"
#include "core/file.h"
#include "core/progress_line.h"
#include "model/config.h"
#include "model/params.h"
#include "train/checkpoint.h"
#include "train/checkpoint_verify.h"
#include "train/checksums.h"
#include "train/run_directory.h"
#include "train/safetensors.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kStateFile = "state.json";

// Files of a model directory that hold weights, or say where they are.
bool HoldsWeights(std::string_view name) {
  for (const char* end : {".safetensors", ".index.json", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml",
                          ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".npz", ".tflite"})
    if (name.ends_with(end)) return true;
  return false;
}

std::vector<std::string> FilesToCopy(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file() || name.starts_with('.') || HoldsWeights(name)) continue;
    if (name != kConfigFile && name != kStateFile && name != kChecksumsFile) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

SafetensorsSource AsStored(const SafetensorsDirectory& files, const std::string& stored_as,
                           const std::string& name) {
  const SafetensorsReader::Entry& entry = files.At(stored_as);
  return {.name = name,
          .type = entry.type,
          .shape = entry.shape,
          .read = [&files, stored_as](int64_t first, std::span<std::byte> out) {
            files.ReadStored(stored_as, first, out);
          }};
}

// `scratch` is for whoever is being read.
SafetensorsSource AsFloats(const SafetensorsDirectory& files, const std::string& stored_as,
                           const std::string& name, const ElementType* type, std::vector<float>& scratch) {
  return {.name = name,
          .type = type,
          .shape = files.Shape(stored_as),
          .read = [&files, stored_as, type, &scratch](int64_t first, std::span<std::byte> out) {
            scratch.resize(out.size() / static_cast<size_t>(type->bytes));
            files.ReadFloat32(stored_as, first, scratch);
            FromFloat32(*type, scratch, out.data());
          }};
}

SafetensorsSource Zeros(const std::string& name, const std::vector<int64_t>& shape) {
  return {.name = name,
          .type = ElementTypeOf(DType::kFloat32),
          .shape = shape,
          .read = [](int64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); }};
}

// What is converted, opened and checked.
class Converter {
 public:
  explicit Converter(const ConvertConfig& config);
  ConvertReport Run() const;

 private:
  bool makes_checkpoint() const { return config_.format == "checkpoint"; }
  bool keeps_state() const { return makes_checkpoint() && optimizer_; }
  std::string Input(const std::string& name) const { return directory_ + "/" + name; }

  // The type in the output of a tensor of the model.
  const ElementType* TypeOf(const std::string& stored_as) const;
  SafetensorsSource ModelTensor(const std::string& stored_as, const std::string& name);
  void AddAll();         // as they are called
  void AddCheckpoint();  // those of a model that longspan trains, with the optimizer

  const ConvertConfig& config_;
  const std::string directory_;
  const SafetensorsDirectory files_;
  std::optional<SafetensorsDirectory> optimizer_;  // of a checkpoint
  std::string config_json_;
  std::optional<DType> dtype_;  // none: as stored
  std::vector<SafetensorsSource> model_tensors_, optimizer_tensors_;
  std::vector<float> scratch_;
};

Converter::Converter(const ConvertConfig& config)
    : config_(config), directory_(ModelDirectory(config.model_path)), files_(directory_, "model") {
  if (Exists(Input(kStateFile)) && SafetensorsDirectory::IsIn(directory_, "optimizer"))
    optimizer_.emplace(directory_, "optimizer");
  RequireContents(directory_, "model");
  if (optimizer_) RequireContents(directory_, "optimizer");
  if (config.dtype != "stored") dtype_ = config.dtype == "float32" ? DType::kFloat32 : DType::kBFloat16;
  config_json_ = ReadTextFile(Input(kConfigFile));
  if (dtype_) config_json_ = WithDType(config_json_, *dtype_, Input(kConfigFile));
  makes_checkpoint() ? AddCheckpoint() : AddAll();
}

const ElementType* Converter::TypeOf(const std::string& stored_as) const {
  const ElementType* stored = files_.At(stored_as).type;
  if (!dtype_ || stored->kind == ElementKind::kInteger) return stored;
  Require(stored->kind == ElementKind::kFloat, "{}: tensor '{}' is {}, which cannot become {}", directory_,
          stored_as, stored->name, config_.dtype);
  return ElementTypeOf(*dtype_);
}

SafetensorsSource Converter::ModelTensor(const std::string& stored_as, const std::string& name) {
  const ElementType* type = TypeOf(stored_as);
  if (type == files_.At(stored_as).type) return AsStored(files_, stored_as, name);
  if (!optimizer_) return AsFloats(files_, stored_as, name, type, scratch_);
  const std::string master = stored_as + ".master";
  optimizer_->Check(master, files_.Shape(stored_as));
  return AsFloats(*optimizer_, master, name, type, scratch_);
}

void Converter::AddAll() {
  std::map<std::string, std::vector<std::string>> aliases;
  for (const auto& [alias, name] : files_.Aliases()) aliases[name].push_back(alias);
  for (const std::string& name : files_.Names()) {
    model_tensors_.push_back(ModelTensor(name, name));
    model_tensors_.back().aliases = aliases[name];
  }
}

void Converter::AddCheckpoint() {
  const ParamTable table = MakeParamTable(ParseModelConfig(config_json_, Input(kConfigFile)));
  const std::vector<std::string> stored_as = FindModelTensors(table, files_, directory_);
  const ElementType* const type = ElementTypeOf(DType::kFloat32);
  for (const ParamUnit& unit : table.units) {
    for (const StoredTensor& tensor : unit.stored) {
      const std::string& source = stored_as[model_tensors_.size()];
      model_tensors_.push_back(ModelTensor(source, tensor.name));
      if (optimizer_) continue;
      optimizer_tensors_.push_back(AsFloats(files_, source, tensor.name + ".master", type, scratch_));
      for (const char* moment : {".exp_avg", ".exp_avg_sq"})
        optimizer_tensors_.push_back(Zeros(tensor.name + moment, tensor.shape));
    }
  }
  if (optimizer_)
    for (const std::string& name : optimizer_->Names())
      optimizer_tensors_.push_back(AsStored(*optimizer_, name, name));
}

ConvertReport Converter::Run() const {
  ConvertReport report = {.model_directory = directory_, .keeps_state = keeps_state()};
  report.num_tensors = static_cast<int64_t>(model_tensors_.size());
  for (const SafetensorsSource& tensor : model_tensors_) {
    report.num_elements += tensor.num_elements();
    report.model_bytes += tensor.num_bytes();
  }

  int64_t written = 0, total = 0;
  for (const auto* tensors : {&model_tensors_, &optimizer_tensors_})
    for (const SafetensorsSource& tensor : *tensors) total += tensor.num_bytes();
  ProgressLine progress("writing " + config_.output, kMegabytes, total);
  const auto counted = [&](std::vector<SafetensorsSource> tensors) {
    for (SafetensorsSource& tensor : tensors)
      tensor.read = [&, read = tensor.read](int64_t first, std::span<std::byte> out) {
        read(first, out);
        progress.Update(written += static_cast<int64_t>(out.size()));
      };
    return tensors;
  };

  DirectoryWriter output(config_.output);
  const auto path_of = [&](const std::string& name) { return output.temporary() + "/" + name; };
  WriteNewFile(path_of(kConfigFile), config_json_);
  for (const std::string& name : FilesToCopy(directory_))
    WriteNewFile(path_of(name), MappedFile(Input(name)).text());
  WriteSafetensors(output.temporary(), "model", counted(model_tensors_), files_.Metadata(),
                   config_.max_shard_bytes);
  if (makes_checkpoint()) {
    WriteSafetensors(output.temporary(), "optimizer", counted(optimizer_tensors_), {},
                     config_.max_shard_bytes);
    WriteNewFile(path_of(kStateFile),
                 keeps_state() ? ReadTextFile(Input(kStateFile)) : WriteCheckpointState({}, "adamw"));
  }
  output.Finish();
  return report;
}

}  // namespace

ConvertReport Convert(const ConvertConfig& config) { return Converter(config).Run(); }

}  // namespace longspan
