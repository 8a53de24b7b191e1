// SPDX-License-Identifier: BSD-3-Clause
#include "sysfs_tree.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace rdmabuf::testing {
namespace {

namespace fs = std::filesystem;

bool is_pci_function(const std::string& name) {
    return name.size() >= 12 && name[name.size() - 2] == '.';
}

} // namespace

SysfsTree::SysfsTree() {
    fs::create_directories(sys());
}

SysfsTree::SysfsTree(std::string_view table) : SysfsTree() {
    fs::create_directories(sys() / "devices");
    fs::create_directories(sys() / "bus/pci/devices");
    fs::create_directories(sys() / "class/infiniband");
    std::istringstream lines{std::string(table)};
    for (std::string line; std::getline(lines, line);) {
        if (line.find_first_not_of(' ') != std::string::npos) {
            add_line(line);
        }
    }
}

void SysfsTree::write(const std::string& path, std::string_view text) const {
    fs::create_directories((sys() / path).parent_path());
    std::ofstream file(sys() / path);
    file << text;
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path);
    }
}

void SysfsTree::link(const std::string& path, const std::string& target) const {
    const fs::path link = sys() / path;
    fs::create_directories(link.parent_path());
    fs::remove(link);
    fs::create_symlink(target, link);
}

void SysfsTree::add_functions(const std::string& path) const {
    const fs::path all(path);
    fs::path parent = "devices";
    for (const fs::path& each : all) {
        parent /= each;
        const std::string name = each.string();
        if (!is_pci_function(name) || fs::exists(sys() / parent)) {
            continue;
        }
        const std::string directory = parent.string() + "/";
        write(directory + "class", "0x060400\n");
        write(directory + "vendor", "0x1000\n");
        write(directory + "device", "0xc030\n");
        write(directory + "numa_node", "-1\n");
        link("bus/pci/devices/" + name, "../../../" + parent.string());
    }
}

void SysfsTree::add_line(const std::string& line) const {
    std::istringstream words(line);
    std::string path;
    words >> path;
    add_functions(path);
    const std::string directory = "devices/" + path + "/";
    std::string nic;
    std::string state = "4: ACTIVE\n";
    std::string rate;
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        const std::string value = equals != std::string::npos ? word.substr(equals + 1) : "";
        if (key == "gpu" || key == "dma") {
            write(directory + "class", key == "gpu" ? "0x030200\n" : "0x088000\n");
            write(directory + "vendor", key == "gpu" ? "0x10de\n" : "0x15b3\n");
            write(directory + "device", key == "gpu" ? "0x2330\n" : "0x2100\n");
        } else if (key == "nic") {
            nic = value;
            write(directory + "class", "0x020700\n");
            write(directory + "vendor", "0x15b3\n");
            write(directory + "device", "0x1021\n");
        } else if (key == "rate") {
            rate = value + " Gb/sec (4X)\n";
        } else if (key == "down") {
            state = "1: DOWN\n";
        } else if (key == "numa") {
            write(directory + "numa_node", value + "\n");
        } else if (key == "link") {
            const std::size_t times = value.find('x');
            write(directory + "max_link_speed", value.substr(0, times) + ".0 GT/s PCIe\n");
            write(directory + "max_link_width", value.substr(times + 1) + "\n");
        } else {
            throw std::invalid_argument("unknown word in a table: " + word);
        }
    }
    if (nic.empty()) {
        return;
    }
    const std::string device = directory + "infiniband/" + nic;
    write(device + "/ports/1/state", state);
    if (!rate.empty()) {
        write(device + "/ports/1/rate", rate);
    }
    link(device + "/device", "../../../" + fs::path(path).filename().string());
    link("class/infiniband/" + nic, "../../" + device);
}

void SysfsTree::add_numa_nodes(std::string_view table) const {
    std::istringstream lines{std::string(table)};
    for (std::string line; std::getline(lines, line);) {
        const std::size_t colon = line.find(": ");
        write("devices/system/node/node" + line.substr(0, colon) + "/distance",
              line.substr(colon + 2) + "\n");
    }
}

} // namespace rdmabuf::testing
