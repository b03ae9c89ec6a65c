#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace nimble::json_format {

// Which reader is at work on which file; begins every message.
struct Origin {
  std::string_view function;
  std::string_view source;
  [[noreturn]] void fail(const std::string& message) const;  // throws InvalidInput
};

// Parses the whole text, or fails with a line and column. Refuses an object that has a member twice, naming
// its place.
nlohmann::json parse(std::string_view text, const Origin& origin);

// A value in a parsed document that knows where it is, so that every complaint names a field. A value refers
// to its parent: keep parents alive while their members are read.
class Value {
 public:
  Value(const nlohmann::json& json, const Origin& origin) : json_(json), origin_(origin) {}

  // An object with these members and no others. Call before `member`.
  void expect_object(std::initializer_list<std::string_view> required,
                     std::initializer_list<std::string_view> optional = {}) const;
  bool has(std::string_view key) const { return json_.contains(key); }
  Value member(std::string_view key) const { return {json_.find(key).value(), *this, key}; }

  std::size_t array_size() const;  // fails if this is no array
  Value element(std::size_t index) const { return {json_[index], *this, index}; }

  const std::string& string() const;
  std::string_view name() const;  // a string that is not empty
  std::uint64_t unsigned_integer(std::uint64_t largest = std::numeric_limits<std::uint64_t>::max()) const;

  [[noreturn]] void fail(const std::string& message) const;

 private:
  Value(const nlohmann::json& json, const Value& parent, std::string_view key)
      : json_(json), origin_(parent.origin_), parent_(&parent), key_(key) {}
  Value(const nlohmann::json& json, const Value& parent, std::size_t index)
      : json_(json), origin_(parent.origin_), parent_(&parent), index_(index) {}
  std::string path() const;
  std::string found() const;

  const nlohmann::json& json_;
  const Origin& origin_;
  const Value* parent_ = nullptr;
  std::string_view key_;
  std::optional<std::size_t> index_;
};

// Fails where the document is another `format`, or another version of it. Asked first, so that a file given
// for another one is told as such; whether both members are there, `expect_object` tells.
void expect_header(const Value& document, std::string_view format);
inline constexpr std::uint64_t kVersion = 1;

}  // namespace nimble::json_format
