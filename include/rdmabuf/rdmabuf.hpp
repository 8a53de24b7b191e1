// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Includes all headers of the library except rdmabuf/transport.hpp and rdmabuf/providers/.
//
// Objects and their parents; parents are on the left or above. An object keeps its parents alive:
//
//   Context ── ProtectionDomain ─┬─ MemoryRegion, DmaBufMR, DeviceMemoryMR ── DeviceMemory
//      │                         ├─ SharedReceiveQueue ──┐
//      │                         ├─ AddressHandle        │
//      │                         ├─ MemoryWindow         │
//      ├─ CompletionChannel ─┐   └─ QueuePair ───────────┘
//      └─ CompletionQueue ───┴────────┘
//
//   An ExtendedCompletionQueue is a CompletionQueue. A ParentDomain is a ProtectionDomain, and
//   keeps its ThreadDomain alive.
//
// From memory to its registration, and to the NICs near it:
//
//   address, length ── Resolver ── Exporter ── ExportedRange ── DmaBufMR
//          └─ register_memory() ── Registration, ChunkedRegion: all these steps in one call
//                 └─ RegistrationCache ── Lease: reuses registrations
//
//   Allocation ── locate_memory() ── MemoryLocation ── Topology::nearest()

#include <rdmabuf/bootstrap.hpp>
#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/cm.hpp>
#include <rdmabuf/cm_channel.hpp>
#include <rdmabuf/cm_multicast.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/device_clock.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/dma_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/extended_completion_queue.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/parent_domain.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/quirks.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/shared_objects.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/srd_completion_queue.hpp>
#include <rdmabuf/topology.hpp>
#include <rdmabuf/unique_fd.hpp>
#include <rdmabuf/version.hpp>
#include <rdmabuf/work_batch.hpp>
#include <rdmabuf/work_request.hpp>
#include <rdmabuf/xrc_domain.hpp>
