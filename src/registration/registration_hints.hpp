// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>

/// The following functions help to find the cause of a failed registration.
namespace rdmabuf::detail {

/// Returns the names of the peer memory clients, which provide the pages of device addresses to
/// ibv_reg_mr(3): the sorted entries of kernel/mm/memory_peers, for example "nv_mem", and then
/// "nvidia_peermem" if this kernel module is loaded.
/// @param sys  the directory where sysfs is mounted
[[nodiscard]] std::vector<std::string> peer_memory_clients(
    const std::filesystem::path& sys = "/sys");

/// Sets the cause and the remedy in @p attempt, in which the registration of a device address
/// without a dma-buf failed with EFAULT.
/// @param clients  the result of peer_memory_clients()
void explain_peer_memory(const std::vector<std::string>& clients, Attempt& attempt);

/// Returns true if @p error can mean that a NIC or an exporter refused a dma-buf: EOPNOTSUPP,
/// EINVAL or 524 (the kernel's ENOTSUPP). Another mapping of the same memory may then work.
[[nodiscard]] bool refuses_mapping(int error) noexcept;

/// Adds the known requirements of the NIC driver and of the exporter to the remedy of @p attempt.
/// Does nothing if refuses_mapping() is false for the error of the attempt.
/// @param driver  the result of sysfs::driver_name()
void explain_refusal(const std::string& driver, Attempt& attempt);

/// If @p attempt failed with EINVAL or ENOMEM, compares @p length (in bytes) with the maximum
/// region size of the device. If @p length is greater, sets this as the cause in @p attempt, and
/// sets the remedy.
void explain_length(const Context& context, std::size_t length, Attempt& attempt);

} // namespace rdmabuf::detail
