// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rdmabuf::tools {

/// A JSON value. In the command, only json.cpp includes the headers of nlohmann-json, which take
/// seconds to compile.
class Json {
  public:
    using Member = std::pair<std::string, Json>;

    /// Null.
    Json() noexcept = default;
    // NOLINTBEGIN(google-explicit-constructor): reports assign values of all types
    template <std::same_as<bool> T>
    Json(T value) noexcept : value_(value) {}
    template <std::signed_integral T>
    Json(T value) noexcept : value_(static_cast<std::int64_t>(value)) {}
    template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>) Json(T value)
    noexcept : value_(static_cast<std::uint64_t>(value)) {}
    Json(double value) noexcept : value_(value) {}
    Json(const char* text) : value_(std::string(text)) {}
    Json(std::string_view text) : value_(std::string(text)) {}
    Json(std::string text) noexcept : value_(std::move(text)) {}
    Json(const std::vector<std::string>& texts);
    Json(const std::map<std::string, std::uint64_t>& numbers);
    /// An object.
    Json(std::initializer_list<Member> members);
    // NOLINTEND(google-explicit-constructor)

    [[nodiscard]] static Json array();
    /// Returns the member @p name of an object, and adds it if the object does not have it. Null
    /// becomes an object.
    Json& operator[](std::string_view name);
    /// Appends an element. This value must be an array.
    void push_back(Json value);

    /// @throws std::invalid_argument, with the position and the cause, if @p text is not JSON
    [[nodiscard]] static Json parse(std::string_view text);
    /// Returns the text if the value is a text, and nullptr for any other value.
    [[nodiscard]] const std::string* text() const noexcept {
        return std::get_if<std::string>(&value_);
    }
    /// Returns the elements of an array, and nullptr for any other value.
    [[nodiscard]] const std::vector<Json>* elements() const noexcept {
        return std::get_if<Array>(&value_);
    }
    /// Returns the members of an object in their order, and nullptr for any other value.
    [[nodiscard]] const std::vector<Member>* members() const noexcept {
        return std::get_if<Object>(&value_);
    }
    /// Returns the member @p name of an object. Returns nullptr if the object does not have it, or
    /// if the value is not an object.
    [[nodiscard]] const Json* find(std::string_view name) const noexcept;
    /// Returns the value of an integer of unsigned type, or of a parsed integer that is not
    /// negative. Returns nullopt for any other value.
    [[nodiscard]] std::optional<std::uint64_t> number() const noexcept;

    /// Returns the value as JSON text with indented lines and a newline at its end. Bytes that are
    /// not UTF-8 are replaced.
    [[nodiscard]] std::string dump() const;

  private:
    using Array = std::vector<Json>;
    using Object = std::vector<Member>;
    friend struct JsonWriter;
    friend struct JsonReader;

    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
                 Object>
        value_;
};

/// Returns null for an empty text.
[[nodiscard]] inline Json or_null(std::string_view text) {
    return text.empty() ? Json() : Json(text);
}
template <class T>
[[nodiscard]] Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

} // namespace rdmabuf::tools
