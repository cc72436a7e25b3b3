// Keys: how a person tells a command what to do, as key=value and in a recipe. A command has one list of
// them, bound to the fields of its configuration; overrides, recipe, help and reference all come from it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace longspan {

// What a number may be: from `min` to `max`, or one value outside of that with a meaning of its own.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::optional<double> also = {};

  bool Contains(double value) const;
  bool Limits() const;  // there is a number outside it
};
NumberRange AtLeast(double min);
NumberRange Between(double min, double max);
NumberRange Or(double also, NumberRange range);

// A value that may differ from name to name, `{books: 0.7, code: 0.3}`, or be one for all: then its name is
// "".
using ValueMap = std::map<std::string, std::string>;

struct Key {
  using Field = std::variant<std::string*, int64_t*, double*, bool*, ValueMap*>;

  std::string_view name;   // of the field as well
  std::string_view group;  // heading in the help
  Field field;             // of a configuration that outlives the key
  std::string_view meaning;
  NumberRange range = {};
  std::vector<std::string_view> choices = {};  // of a text, or of each text in a map; empty: any
  bool required = false;
  bool is_option = false;          // given as --name VALUE, and not in a recipe
  std::string required_hint = {};  // said as well where it is missing
  std::string default_text = {};   // what the field held when the key was made
};

// A list of keys as it is written down: groups first, then what belongs to them.
class KeyList {
 public:
  void Group(std::string_view group) { group_ = group; }
  Key& Add(std::string_view name, Key::Field field, std::string_view meaning, NumberRange range = {},
           std::vector<std::string_view> choices = {});
  // Those of another command's list, in its order, that are named.
  void AddFrom(const KeyList& other, std::span<const std::string_view> names);

  std::span<const Key> keys() const { return keys_; }
  const Key* Find(std::string_view name) const;
  Key& Get(std::string_view name);  // which must be there

 private:
  std::string_view group_;
  std::vector<Key> keys_;
};

std::string TypeName(const Key& key);   // "integer", "number", "true|false", "text", or its choices "a|b|c"
std::string Wanted(const Key& key);     // "an integer, at least 1": what an error and the help say
std::string ValueText(const Key& key);  // reads back as the same value

// Sets the fields of `keys` by the arguments of `longspan COMMAND [RECIPE.yml] [key=value …]`. Throws
// Error(kUsage) naming the key, where it stands, what it got and what is wanted: unknown or repeated keys (an
// override is no repetition of the recipe's), wrong types, values out of range, unreadable recipes, a
// required key that is nowhere. With `positional`, the name of a text key, the argument that is no key=value
// is that key's value instead of a recipe.
void LoadKeys(std::string_view command, const KeyList& keys, std::span<const std::string> arguments,
              std::string_view positional = {});

// Sets them by one flat YAML map; `where` is what errors call it.
void LoadKeysFromText(std::string_view command, const KeyList& keys, const std::string& text,
                      const std::string& where);

// A recipe that says every key in list order; LoadKeys reads the same values back from it.
std::string WriteRecipe(const KeyList& keys);
// The same below a comment for each group, but for keys that have the values with which the list was made.
std::string WriteChanges(const KeyList& keys);

}  // namespace longspan
