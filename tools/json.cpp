// SPDX-License-Identifier: BSD-3-Clause
#include "json.hpp"

#include <algorithm>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace rdmabuf::tools {

/// Converts a value to the type of the JSON library, which keeps the order of the members.
struct JsonWriter {
    using Output = nlohmann::ordered_json;

    static Output convert(const Json& json) { return std::visit(JsonWriter(), json.value_); }

    Output operator()(std::monostate) const { return {}; }
    Output operator()(const Json::Array& array) const {
        Output output = Output::array();
        for (const Json& each : array) {
            output.push_back(convert(each));
        }
        return output;
    }
    Output operator()(const Json::Object& object) const {
        Output output = Output::object();
        for (const auto& [name, value] : object) {
            output[name] = convert(value);
        }
        return output;
    }
    template <class T>
    Output operator()(const T& value) const {
        return value;
    }
};

struct JsonReader {
    using Input = nlohmann::ordered_json;

    static Json convert(const Input& input) {
        Json json;
        switch (input.type()) {
            case Input::value_t::object:
                json.value_ = Json::Object();
                for (const auto& [name, value] : input.items()) {
                    json[name] = convert(value);
                }
                break;
            case Input::value_t::array:
                json.value_ = Json::Array();
                for (const Input& each : input) {
                    json.push_back(convert(each));
                }
                break;
            case Input::value_t::string:
                json.value_ = input.get<std::string>();
                break;
            case Input::value_t::boolean:
                json.value_ = input.get<bool>();
                break;
            case Input::value_t::number_integer:
                json.value_ = input.get<std::int64_t>();
                break;
            case Input::value_t::number_unsigned:
                json.value_ = input.get<std::uint64_t>();
                break;
            case Input::value_t::number_float:
                json.value_ = input.get<double>();
                break;
            default:
                break;
        }
        return json;
    }
};

Json Json::parse(std::string_view text) {
    try {
        return JsonReader::convert(nlohmann::ordered_json::parse(text));
    } catch (const nlohmann::json::parse_error& error) {
        // The text is "[json.exception...] parse error at ...: ...; last read: ...". Remove its
        // last part, which can be as long as the parsed text.
        std::string_view cause = error.what();
        cause.remove_prefix(std::min(cause.find("parse error"), cause.size()));
        throw std::invalid_argument(std::string(cause.substr(0, cause.find("; last read"))));
    }
}

const Json* Json::find(std::string_view name) const noexcept {
    const auto* const object = members();
    if (object == nullptr) {
        return nullptr;
    }
    const auto found = std::ranges::find(*object, name, &Member::first);
    return found != object->end() ? &found->second : nullptr;
}

std::optional<std::uint64_t> Json::number() const noexcept {
    const auto* const number = std::get_if<std::uint64_t>(&value_);
    return number != nullptr ? std::optional(*number) : std::nullopt;
}

Json::Json(const std::vector<std::string>& texts) : value_(Array(texts.begin(), texts.end())) {}

Json::Json(const std::map<std::string, std::uint64_t>& numbers) : value_(Object()) {
    for (const auto& [name, number] : numbers) {
        (*this)[name] = number;
    }
}

Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}

Json Json::array() {
    Json json;
    json.value_ = Array();
    return json;
}

Json& Json::operator[](std::string_view name) {
    if (std::holds_alternative<std::monostate>(value_)) {
        value_ = Object();
    }
    auto& object = std::get<Object>(value_);
    const auto found = std::ranges::find(object, name, &Member::first);
    return found != object.end() ? found->second : object.emplace_back(name, Json()).second;
}

void Json::push_back(Json value) {
    std::get<Array>(value_).push_back(std::move(value));
}

std::string Json::dump() const {
    return JsonWriter::convert(*this).dump(2, ' ', false,
                                           JsonWriter::Output::error_handler_t::replace) +
           "\n";
}

} // namespace rdmabuf::tools
