// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of an NCCL job: all_reduce and all_gather on the memory of GPU 0, with all results
// checked. tests/gpu/nccl starts the ranks.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_program.hpp"
#include "waiting.hpp"

namespace {

/// The part of NCCL's interface that this program uses. It is declared here, because the program is
/// built without NCCL and loads it with dlopen(3).
namespace nccl {

using Communicator = struct OpaqueCommunicator*; // ncclComm_t
/// ncclUniqueId
struct UniqueId {
    std::array<char, 128> bytes;
};
inline constexpr int uint32 = 3; // ncclUint32
inline constexpr int sum = 0;    // ncclSum

using GetVersion = int(int*);
using GetErrorString = const char*(int);
using GetUniqueId = int(UniqueId*);
using InitRank = int(Communicator*, int ranks, UniqueId, int rank);
using AllReduce = int(const void* from, void* to, std::size_t count, int type, int operation,
                      Communicator, void* stream);
using AllGather = int(const void* from, void* to, std::size_t count, int type, Communicator,
                      void* stream);
using Destroy = int(Communicator);

} // namespace nccl

using Words = std::vector<std::uint32_t>;

std::vector<std::byte> bytes_of(const Words& words) {
    std::vector<std::byte> bytes(words.size() * sizeof(std::uint32_t));
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
}

class Rank {
  public:
    Rank(int rank, int ranks, const std::filesystem::path& id_file)
        : rank_(rank), ranks_(ranks), library_(open_library()) {
        int version = 0;
        check(function<nccl::GetVersion>("ncclGetVersion")(&version), "ncclGetVersion");
        std::printf("rank %d: NCCL %d\n", rank_, version);
        check(function<nccl::InitRank>("ncclCommInitRank")(&communicator_, ranks_,
                                                           exchange_id(id_file), rank_),
              "ncclCommInitRank");
    }
    ~Rank() { function<nccl::Destroy>("ncclCommDestroy")(communicator_); }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    void all_reduce(std::size_t count) {
        const auto memory = program_.allocate(count * sizeof(std::uint32_t));
        const auto address = cuda_program::Program::address_of(memory);
        program_.copy_in(address, bytes_of(values(rank_, count)));
        check(
            function<nccl::AllReduce>("ncclAllReduce")(
                memory.get(), memory.get(), count, nccl::uint32, nccl::sum, communicator_, nullptr),
            "ncclAllReduce");
        Words expected(count);
        for (int rank = 0; rank < ranks_; ++rank) {
            const Words part = values(rank, count);
            for (std::size_t i = 0; i < count; ++i) {
                expected[i] += part[i];
            }
        }
        compare("all_reduce", address, expected);
    }
    void all_gather(std::size_t count) {
        const std::size_t size = count * sizeof(std::uint32_t);
        const auto from = program_.allocate(size);
        const auto to = program_.allocate(size * static_cast<std::size_t>(ranks_));
        program_.copy_in(cuda_program::Program::address_of(from), bytes_of(values(rank_, count)));
        check(function<nccl::AllGather>("ncclAllGather")(from.get(), to.get(), count, nccl::uint32,
                                                         communicator_, nullptr),
              "ncclAllGather");
        Words expected;
        for (int rank = 0; rank < ranks_; ++rank) {
            const Words part = values(rank, count);
            expected.insert(expected.end(), part.begin(), part.end());
        }
        compare("all_gather", cuda_program::Program::address_of(to), expected);
    }

  private:
    static void* open_library() {
        const char* const path =
            std::getenv("RDMABUF_NCCL_LIBRARY"); // NOLINT(concurrency-mt-unsafe)
        void* const library = ::dlopen(path != nullptr ? path : "libnccl.so.2", RTLD_NOW);
        if (library == nullptr) {
            throw std::runtime_error(::dlerror()); // NOLINT(concurrency-mt-unsafe)
        }
        return library;
    }
    template <class Function>
    [[nodiscard]] Function* function(const char* name) const {
        void* const found = ::dlsym(library_, name);
        if (found == nullptr) {
            throw std::runtime_error(std::string("NCCL has no ") + name);
        }
        return reinterpret_cast<Function*>(found);
    }
    void check(int result, const char* name) const {
        if (result != 0) {
            throw std::runtime_error(std::string(name) + ": " +
                                     function<nccl::GetErrorString>("ncclGetErrorString")(result));
        }
    }
    /// Rank 0 writes NCCL's id to a file, which the other ranks read.
    [[nodiscard]] nccl::UniqueId exchange_id(const std::filesystem::path& file) const {
        nccl::UniqueId id{};
        if (rank_ == 0) {
            check(function<nccl::GetUniqueId>("ncclGetUniqueId")(&id), "ncclGetUniqueId");
            const std::filesystem::path written = file.string() + ".new";
            std::ofstream(written, std::ios::binary).write(id.bytes.data(), sizeof id.bytes);
            std::filesystem::rename(written, file);
            return id;
        }
        if (!rdmabuf::testing::eventually([&file] { return std::filesystem::exists(file); })) {
            throw std::runtime_error("rank 0 has not written " + file.string());
        }
        std::ifstream(file, std::ios::binary).read(id.bytes.data(), sizeof id.bytes);
        return id;
    }
    [[nodiscard]] static Words values(int rank, std::size_t count) {
        Words words(count);
        for (std::size_t i = 0; i < count; ++i) {
            words[i] = static_cast<std::uint32_t>(i * 2654435761U) +
                       static_cast<std::uint32_t>(rank) * 40503U;
        }
        return words;
    }
    void compare(const char* what, std::uintptr_t address, const Words& expected) const {
        // Not the copy below: while a copy to pageable memory waits for NCCL's kernel, the driver
        // blocks the copies by which softverbs moves what the kernel waits for.
        program_.synchronize();
        const std::vector<std::byte> wanted = bytes_of(expected);
        if (program_.copy_out(address, wanted.size()) != wanted) {
            throw std::runtime_error(std::string(what) + " of " + std::to_string(wanted.size()) +
                                     " bytes: wrong result");
        }
        std::printf("rank %d: %s: %zu bytes are correct\n", rank_, what, wanted.size());
    }

    cuda_program::Program program_;
    int rank_;
    int ranks_;
    void* library_;
    nccl::Communicator communicator_ = nullptr;
};

} // namespace

int main(int argc, char** argv) try {
    if (argc != 4) {
        std::fprintf(stderr, "usage: nccl_program RANK RANKS ID_FILE\n");
        return EXIT_FAILURE;
    }
    // What has succeeded is in the log also when the program has to be ended.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    Rank rank(std::stoi(argv[1]), std::stoi(argv[2]), argv[3]);
    for (const std::size_t count : {2U, 1000U, 65536U, 1048577U, 4194304U}) {
        rank.all_reduce(count);
        rank.all_gather(count);
    }
    return EXIT_SUCCESS;
} catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_program: %s\n", error.what());
    return EXIT_FAILURE;
}
