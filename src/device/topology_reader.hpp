// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <rdmabuf/topology.hpp>

namespace rdmabuf::detail {

/// Builds a Topology from the files below /sys.
class TopologyReader {
  public:
    /// @param sys  the directory where sysfs is mounted
    explicit TopologyReader(std::string sys);

    [[nodiscard]] Topology read();

  private:
    void read_pci_functions();
    void read_numa_nodes();
    void read_nics();
    void read_link(PciFunction& function, const std::string& directory);
    void read_identity(PciFunction& function, const std::string& directory);
    void read_pci_function_of(Nic& nic, const std::string& directory);
    void read_ports(Nic& nic, const std::string& directory);

    /// Returns the names in a directory. If the directory cannot be read, returns an empty list and
    /// adds the error to the problems of the topology.
    [[nodiscard]] std::vector<std::string> list(const std::string& directory);
    void add_problem(const std::string& path, const std::string& what);
    /// Returns the result of @p parse for the first line of a file, or std::nullopt if the file
    /// cannot be read. For a malformed line, returns std::nullopt and adds the error to the
    /// problems of the topology.
    template <class Parse>
    [[nodiscard]] auto value(const std::string& path, Parse parse) -> decltype(parse({}));

    std::string sys_;
    /// The path of /sys/devices without symbolic links. Empty before read(), and if the path cannot
    /// be resolved.
    std::string devices_;
    Topology topology_;
};

} // namespace rdmabuf::detail
