// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <rdmabuf/access.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/registration_trail.hpp>

/// What is found out after a failure, to say why.
namespace rdmabuf::detail {

/// The kernel modules here that find the pages of device addresses for ibv_reg_mr.
/// @param sys  where sysfs is
[[nodiscard]] std::vector<std::string> peer_memory_clients(
    const std::filesystem::path& sys = "/sys");

/// What ibv_reg_mr's EFAULT for a device address means.
/// @param clients  of peer_memory_clients()
void explain_peer_memory(const std::vector<std::string>& clients, Attempt& attempt);

/// Whether this errno is how a NIC or an exporter refuses a dma-buf: another mapping of the same
/// memory may be taken.
[[nodiscard]] bool refuses_mapping(int error) noexcept;

/// Adds what is known of the two drivers to an attempt that the NIC or the exporter refused.
/// @param driver  as of driver_name()
void explain_refusal(const std::string& driver, Access access, Attempt& attempt);

/// Says so when more bytes than the device registers at once were asked for. Asks the device.
void explain_length(const Context& context, std::size_t length, Attempt& attempt);

} // namespace rdmabuf::detail
