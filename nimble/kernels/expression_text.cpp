// Expressions as text, and back.
#include <ATen/core/ivalue.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "nimble/core/error.h"
#include "nimble/kernels/expression.h"

namespace nimble::kernels {
namespace {

std::string print_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  std::string text(digits, end);
  // A whole number with a point is a floating one, which matters for the type of the result.
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string print(const Value& value) {
  return (value.kind == Value::Kind::kInput ? "x" : "%") + std::to_string(value.index);
}

std::string print(const Argument& argument) {
  if (const auto* value = std::get_if<Value>(&argument)) return print(*value);
  const auto& constant = std::get<c10::IValue>(argument);
  if (constant.isNone()) return "none";
  if (constant.isBool()) return constant.toBool() ? "true" : "false";
  if (constant.isInt()) return std::to_string(constant.toInt());
  if (constant.isDouble()) return print_number(constant.toDouble());
  if (constant.isString()) return "'" + constant.toStringRef() + "'";
  if (constant.isIntList()) {
    std::string text;
    for (const std::int64_t number : constant.toIntList()) {
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    }
    return "[" + text + "]";
  }
  throw InvalidInput("[nimble::Expression] an argument of type " + constant.tagKind() +
                     " cannot be part of an expression");
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Expression read() {
    Expression expression;
    while (!accept("return ")) {
      expect("%" + std::to_string(expression.steps.size()) + " = ");
      expression.steps.push_back(read_step(expression));
      expect("; ");
    }
    do {
      expression.results.push_back(read_value(expression));
    } while (accept(", "));
    if (at_ != text_.size()) fail("nothing more");
    return expression;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw InvalidInput("[nimble::parse_expression] at character " + std::to_string(at_) + ", " + wanted +
                       " was expected: " + std::string(text_));
  }
  bool accept(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("\"" + std::string(token) + "\"");
  }
  std::string_view read_until(std::string_view ends) {
    const auto end = std::min(text_.find_first_of(ends, at_), text_.size());
    const auto token = text_.substr(at_, end - at_);
    at_ = end;
    return token;
  }

  Step read_step(Expression& expression) {
    Step step{std::string(read_until("(")), {}};
    expect("(");
    if (accept(")")) return step;
    do {
      step.arguments.push_back(read_argument(expression));
    } while (accept(", "));
    expect(")");
    return step;
  }

  Argument read_argument(Expression& expression) {
    if (text_.substr(at_).starts_with("x") || text_.substr(at_).starts_with("%")) {
      return read_value(expression);
    }
    if (accept("'")) {
      const std::string content(read_until("'"));
      expect("'");
      return c10::IValue(content);
    }
    if (accept("[")) return c10::IValue(read_whole_numbers());
    const auto token = read_until(",);");
    if (token == "none") return c10::IValue();
    if (token == "true" || token == "false") return c10::IValue(token == "true");
    std::int64_t integer = 0;
    if (const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), integer);
        error == std::errc() && end == token.data() + token.size()) {
      return c10::IValue(integer);
    }
    double number = 0;
    if (const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
        error == std::errc() && end == token.data() + token.size()) {
      return c10::IValue(number);
    }
    fail("an argument");
  }

  std::vector<std::int64_t> read_whole_numbers() {
    std::vector<std::int64_t> numbers;
    if (accept("]")) return numbers;
    do {
      const auto token = read_until(",]");
      const auto [end, error] =
          std::from_chars(token.data(), token.data() + token.size(), numbers.emplace_back());
      if (error != std::errc() || end != token.data() + token.size()) fail("a whole number");
    } while (accept(", "));
    expect("]");
    return numbers;
  }

  Value read_value(Expression& expression) {
    const bool is_input = accept("x");
    if (!is_input) expect("%");
    std::size_t index = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), index);
    if (error != std::errc()) fail("a number");
    if (!is_input && index >= expression.steps.size()) fail("the number of an earlier step");
    if (is_input && index >= kMostInputs) fail("the number of an input");
    at_ += static_cast<std::size_t>(end - begin);
    if (is_input) expression.inputs = std::max(expression.inputs, index + 1);
    return is_input ? input(index) : step(index);
  }

  static constexpr std::size_t kMostInputs = 1000;

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string to_string(const Expression& expression) {
  std::string text;
  for (std::size_t i = 0; i < expression.steps.size(); ++i) {
    text += "%" + std::to_string(i) + " = " + expression.steps[i].function + "(";
    const char* separator = "";
    for (const Argument& argument : expression.steps[i].arguments) {
      text += separator + print(argument);
      separator = ", ";
    }
    text += "); ";
  }
  text += "return ";
  const char* separator = "";
  for (const Value& result : expression.results) {
    text += separator + print(result);
    separator = ", ";
  }
  return text;
}

Expression parse_expression(std::string_view text) { return Reader(text).read(); }

}  // namespace nimble::kernels
