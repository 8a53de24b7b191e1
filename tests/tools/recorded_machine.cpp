// SPDX-License-Identifier: BSD-3-Clause
#include "recorded_machine.hpp"

#include <zlib.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace rdmabuf::testing {
namespace {

namespace fs = std::filesystem;

void put(std::string& bytes, std::size_t offset, unsigned long value) {
    bytes[offset] = static_cast<char>(value & 0xffU);
    bytes[offset + 1] = static_cast<char>(value >> 8U & 0xffU);
}

/// Returns the contents of a gzip file with this text.
std::string compressed(std::string text) {
    constexpr int gzip = 16 + MAX_WBITS; // as zlib.h defines the parameter windowBits
    constexpr int default_memory = 8;
    z_stream stream{};
    std::string out(text.size() + 128, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip, default_memory,
                       Z_DEFAULT_STRATEGY) != Z_OK ||
        ::deflate(&stream, Z_FINISH) != Z_STREAM_END || ::deflateEnd(&stream) != Z_OK) {
        throw std::runtime_error("zlib cannot compress " + text);
    }
    out.resize(stream.total_out);
    return out;
}

} // namespace

RecordedMachine::RecordedMachine(const fs::path& description) : tree_("") {
    std::ifstream file(description);
    if (!file) {
        throw std::invalid_argument("cannot read " + description.string());
    }
    for (std::string line; std::getline(file, line);) {
        if (!line.empty() && line.front() != '#') {
            add_line(line);
        }
    }
}

void RecordedMachine::add_line(const std::string& line) {
    std::istringstream words(line);
    std::string directive;
    words >> directive >> std::ws;
    std::string rest;
    std::getline(words, rest);
    std::istringstream arguments(rest);
    std::string first;
    std::string second;
    arguments >> first >> std::ws;
    std::getline(arguments, second);
    if (directive == "pci") {
        tree_.add(rest);
    } else if (directive == "numa") {
        tree_.add_numa_nodes(rest);
    } else if (directive == "driver") {
        tree_.link("bus/pci/devices/" + first + "/driver", "../../../bus/pci/drivers/" + second);
    } else if (directive == "config") {
        add_config(rest);
    } else if (directive == "uverbs") {
        add_uverbs(rest);
    } else if (directive == "file") {
        append(first, second + "\n");
    } else if (directive == "gzip") {
        append(first, compressed(second + "\n"));
    } else if (directive == "node") {
        append(first, "");
    } else if (directive == "identity") {
        tree_.write("bus/pci/devices/" + first + "/vendor", second + "\n");
    } else if (directive == "remove") {
        fs::remove_all(root() / fs::path(first).relative_path());
    } else if (directive == "result") {
        results_.push_back(rest);
    } else if (directive == "exit") {
        exit_status_ = std::stoi(first);
    } else if (directive == "pass" || directive == "fail" || directive == "unknown") {
        add_expected(directive, rest);
    } else {
        throw std::invalid_argument("unknown directive: " + line);
    }
}

void RecordedMachine::add_expected(const std::string& verdict, const std::string& rest) {
    ExpectedFinding finding{.verdict = verdict, .id = {}, .subject = {}, .text = {}};
    const std::size_t tilde = rest.find('~');
    if (tilde != std::string::npos) {
        finding.text = rest.substr(rest.find_first_not_of(' ', tilde + 1));
    }
    std::istringstream words(rest.substr(0, tilde));
    words >> finding.id;
    for (std::string word; words >> word;) {
        finding.subject += (finding.subject.empty() ? "" : " ") + word;
    }
    expected_.push_back(std::move(finding));
}

void RecordedMachine::add_config(const std::string& rest) const {
    std::istringstream words(rest);
    std::string address;
    words >> address;
    // A PCI Express capability at 0x40, then at 0x100 and 0x110 the extended capabilities ACS and
    // ATS. Functions without ACS or ATS have a capability with the ID 0x0b (vendor-specific) there.
    constexpr std::size_t express = 0x40;
    constexpr std::size_t acs = 0x100;
    constexpr std::size_t ats = 0x110;
    std::string bytes(4096, '\0');
    put(bytes, 0x34, express);
    put(bytes, express, 0x10);
    put(bytes, acs, 0x0b);
    put(bytes, acs + 2, 0x1101);
    put(bytes, ats, 0x0b);
    put(bytes, ats + 2, 0x0001);
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        const unsigned long value =
            equals == std::string::npos ? 0 : std::stoul(word.substr(equals + 1), nullptr, 16);
        if (key == "gone") {
            bytes.assign(bytes.size(), '\xff');
            break;
        }
        if (key == "short") {
            bytes.resize(64);
            break;
        }
        if (key == "acs") {
            put(bytes, acs, 0x0d);
            put(bytes, acs + 6, value);
        } else if (key == "ats") {
            put(bytes, ats, 0x0f);
            put(bytes, ats + 6, value);
        } else if (key == "control") {
            put(bytes, express + 8, value);
        } else {
            throw std::invalid_argument("unknown word in config: " + word);
        }
    }
    tree_.write("bus/pci/devices/" + address + "/config", bytes);
}

void RecordedMachine::add_uverbs(const std::string& rest) const {
    std::istringstream words(rest);
    std::string nic;
    std::string node;
    std::string no_node;
    words >> nic >> node >> no_node;
    tree_.write("class/infiniband_verbs/abi_version", "6\n");
    tree_.write("class/infiniband_verbs/" + node + "/ibdev", nic + "\n");
    if (no_node.empty()) {
        append("/dev/infiniband/" + node, "");
    }
}

void RecordedMachine::append(const std::string& path, const std::string& text) const {
    const fs::path full = root() / fs::path(path).relative_path();
    fs::create_directories(full.parent_path());
    std::ofstream file(full, std::ios::app);
    file << text;
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

} // namespace rdmabuf::testing
