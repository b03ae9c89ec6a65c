#include "nimble/core/json/reader.h"

#include <algorithm>
#include <set>
#include <vector>

#include "nimble/core/error.h"
#include "nimble/core/quote.h"

namespace nimble::json_format {

using nlohmann::json;

namespace {

// What the parser has begun and not ended, outermost first.
class OpenValues {
 public:
  // Takes note of what the parser came to. False if an object has a key for the second time, which is the
  // last one.
  bool come_to(json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_end || event == Event::array_end) {
      open_.pop_back();
    } else if (event == Event::key) {
      open_.back().key = value.get<std::string>();
      return open_.back().keys.insert(open_.back().key).second;
    } else {
      if (!open_.empty()) ++open_.back().elements;
      if (event != Event::value) open_.push_back({.is_array = event == Event::array_start});
    }
    return true;
  }

  std::string path() const {
    std::string path;
    for (const Open& value : open_)
      path += value.is_array ? "[" + std::to_string(value.elements - 1) + "]"
                             : (path.empty() ? "" : ".") + value.key;
    return path;
  }

 private:
  struct Open {
    bool is_array;
    std::size_t elements = 0;
    std::set<std::string> keys = {};
    std::string key = {};
  };
  std::vector<Open> open_;
};

}  // namespace

void Origin::fail(const std::string& message) const {
  throw InvalidInput("[nimble::" + std::string(function) + "] " + std::string(source) + ": " + message);
}

json parse(std::string_view text, const Origin& origin) {
  OpenValues open;
  auto refuse_repeated_keys = [&](int, json::parse_event_t event, const json& value) {
    if (!open.come_to(event, value)) origin.fail(open.path() + ": is given twice");
    return true;
  };
  try {
    return json::parse(text, refuse_repeated_keys);
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 7: ... last read: '<all of a long
    // token>'": keep what a person can use.
    constexpr std::size_t kLongest = 200;
    std::string message = error.what();
    message.erase(0, message.find("] ") + 2);
    if (message.size() > kLongest) message = message.substr(0, kLongest) + "...";
    origin.fail("not valid JSON: " + message);
  }
}

void Value::expect_object(std::initializer_list<std::string_view> required,
                          std::initializer_list<std::string_view> optional) const {
  if (!json_.is_object()) fail("must be an object, not " + found());
  auto contains = [](auto list, std::string_view key) { return std::ranges::find(list, key) != list.end(); };
  for (const auto& [key, value] : json_.items())
    if (!contains(required, key) && !contains(optional, key)) fail("has an unknown member " + quote(key));
  for (std::string_view key : required)
    if (!has(key)) fail("has no member " + quote(key));
}

std::size_t Value::array_size() const {
  if (!json_.is_array()) fail("must be an array, not " + found());
  return json_.size();
}

const std::string& Value::string() const {
  if (!json_.is_string()) fail("must be a string, not " + found());
  return json_.get_ref<const std::string&>();
}

std::string_view Value::name() const {
  if (string().empty()) fail("must not be empty");
  return string();
}

std::uint64_t Value::unsigned_integer(std::uint64_t largest) const {
  if (!json_.is_number_unsigned())
    fail("must be a whole number from 0 to " + std::to_string(largest) + ", not " + found());
  const auto value = json_.get<std::uint64_t>();
  if (value > largest) fail("must be at most " + std::to_string(largest) + ", not " + std::to_string(value));
  return value;
}

void Value::fail(const std::string& message) const {
  const std::string where = path();
  origin_.fail(where.empty() ? "the document " + message : where + ": " + message);
}

std::string Value::path() const {
  if (!parent_) return "";
  const std::string before = parent_->path();
  if (index_) return before + "[" + std::to_string(*index_) + "]";
  return before.empty() ? std::string(key_) : before + "." + std::string(key_);
}

std::string Value::found() const {
  if (json_.is_string()) return quote(json_.get_ref<const std::string&>());
  if (json_.is_number()) return json_.dump();
  return json_.type_name();
}

void expect_header(const Value& document, std::string_view format) {
  if (document.has("format") && document.member("format").string() != format)
    document.member("format").fail("must be " + quote(format) + ", not " +
                                   quote(document.member("format").string()));
  if (document.has("version") && document.member("version").unsigned_integer() != kVersion)
    document.member("version").fail("this Nimble reads version " + std::to_string(kVersion) + " only");
}

}  // namespace nimble::json_format
