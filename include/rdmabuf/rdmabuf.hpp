// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Includes the headers that most programs need: those to register memory, and to connect queue
// pairs and use them. A program includes the others as it needs them:
//
//   chunked_region.hpp             memory that is larger than the maximum size of a region
//   cm.hpp, cm_channel.hpp, cm_multicast.hpp
//                                  connections by rdma_cm
//   device_clock.hpp, extended_completion_queue.hpp, srd_completion_queue.hpp
//                                  timestamps and other extended completions
//   device_memory.hpp              memory on the NIC
//   dma_handle.hpp                 TLP processing hints for registrations
//   memory_window.hpp              MemoryWindow
//   parent_domain.hpp              ThreadDomain, ParentDomain
//   providers/                     exporters with options, and those that Resolver::system()
//                                  does not include
//   quirks.hpp                     limits of drivers
//   registration_cache.hpp         reuse of registrations
//   shared_objects.hpp             objects of another process
//   topology.hpp                   the NICs near memory
//   transport.hpp                  messages, one-sided operations and notifications
//   work_batch.hpp                 the ibv_wr_* interface
//   xrc_domain.hpp                 XRC
//
// Objects and their parents. Parents are on the left or above, except DeviceMemory, which is a
// parent of DeviceMemoryMR. An object keeps its parents alive:
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
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/unique_fd.hpp>
#include <rdmabuf/version.hpp>
#include <rdmabuf/work_request.hpp>
