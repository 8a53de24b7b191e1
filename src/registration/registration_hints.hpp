// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>

/// The following functions find the cause of a failed registration, and add the cause to an
/// Attempt.
namespace rdmabuf::detail {

/// Returns the names of the loaded kernel modules that provide the pages of device addresses to
/// ibv_reg_mr(3).
/// @param sys  the directory where sysfs is mounted
[[nodiscard]] std::vector<std::string> peer_memory_clients(
    const std::filesystem::path& sys = "/sys");

/// Adds to @p attempt the reason why ibv_reg_mr(3) failed with EFAULT for a device address.
/// @param clients  the result of peer_memory_clients()
void explain_peer_memory(const std::vector<std::string>& clients, Attempt& attempt);

/// Returns true if @p error means that a NIC or an exporter refused a dma-buf. In this case,
/// another mapping of the same memory may work.
[[nodiscard]] bool refuses_mapping(int error) noexcept;

/// Adds the known requirements of the NIC driver and of the exporter to @p attempt, if the NIC or
/// the exporter refused the dma-buf.
/// @param driver  the result of sysfs::driver_name()
void explain_refusal(const std::string& driver, Attempt& attempt);

/// If @p attempt failed with EINVAL or ENOMEM, compares @p length (in bytes) with the maximum
/// region size of the device. If @p length is greater, sets this as the cause in @p attempt.
void explain_length(const Context& context, std::size_t length, Attempt& attempt);

} // namespace rdmabuf::detail
