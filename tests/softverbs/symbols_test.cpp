// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <elf.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <softverbs/softverbs.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sanitizers.hpp"

namespace {

using softverbs_test::address_sanitizer;
using softverbs_test::thread_sanitizer;

struct Symbol {
    std::string name;
    std::string version; // empty: it has none
};

std::string file_of(const void* address) {
    Dl_info info{};
    return ::dladdr(address, &info) != 0 ? info.dli_fname : "";
}

link_map* loaded(std::string_view part_of_name) {
    void* const program = ::dlopen(nullptr, RTLD_LAZY);
    link_map* map = nullptr;
    ::dlinfo(program, RTLD_DI_LINKMAP, &map);
    while (map != nullptr &&
           std::string_view(map->l_name).find(part_of_name) == std::string_view::npos) {
        map = map->l_next;
    }
    ::dlclose(program);
    return map;
}

/// Reads the dynamic section of a loaded library.
class DynamicSection {
  public:
    explicit DynamicSection(const link_map& map) : map_(map) {}

    template <class Type>
    const Type* table(ElfW(Sxword) tag) const {
        for (const ElfW(Dyn)* entry = map_.l_ld; entry->d_tag != DT_NULL; ++entry) {
            if (entry->d_tag == tag) {
                // The loader has added the load address to some of these pointers, but not to all.
                const ElfW(Addr) address = entry->d_un.d_ptr;
                return reinterpret_cast<const Type*>(address < map_.l_addr ? address + map_.l_addr
                                                                           : address);
            }
        }
        return nullptr;
    }

  private:
    const link_map& map_;
};

/// Returns the highest symbol index plus one. It follows the chains of the GNU hash table.
std::size_t symbol_count(const std::uint32_t* hash) {
    const std::uint32_t buckets = hash[0];
    const std::uint32_t first = hash[1];
    const auto* const bucket = reinterpret_cast<const std::uint32_t*>(
        reinterpret_cast<const ElfW(Addr)*>(hash + 4) + hash[2]);
    const std::uint32_t* const chain = bucket + buckets;
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < buckets; ++i) {
        last = std::max(last, bucket[i]);
    }
    while (last >= first && (chain[last - first] & 1) == 0) {
        ++last;
    }
    return last + 1;
}

std::string version_name(const DynamicSection& section, unsigned index) {
    const auto* const strings = section.table<char>(DT_STRTAB);
    const auto* next = section.table<char>(DT_VERDEF);
    while (next != nullptr) {
        const auto* const definition = reinterpret_cast<const ElfW(Verdef)*>(next);
        if (definition->vd_ndx == index) {
            const auto* const name =
                reinterpret_cast<const ElfW(Verdaux)*>(next + definition->vd_aux);
            return strings + name->vda_name;
        }
        next = definition->vd_next != 0 ? next + definition->vd_next : nullptr;
    }
    return {};
}

/// Returns the verbs functions that a library defines, with their default versions.
std::vector<Symbol> verbs_defined_in(const link_map& map) {
    const DynamicSection section(map);
    const auto* const symbols = section.table<ElfW(Sym)>(DT_SYMTAB);
    const auto* const strings = section.table<char>(DT_STRTAB);
    const auto* const versions = section.table<ElfW(Versym)>(DT_VERSYM);
    constexpr unsigned hidden = 0x8000;
    constexpr unsigned first_named_version = 2;
    std::vector<Symbol> found;
    const std::size_t count = symbol_count(section.table<std::uint32_t>(DT_GNU_HASH));
    for (std::size_t i = 1; i < count; ++i) {
        const std::string name = strings + symbols[i].st_name;
        const bool is_function = ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC;
        if (symbols[i].st_shndx == SHN_UNDEF || !is_function || (versions[i] & hidden) != 0 ||
            (!name.starts_with("ibv_") && !name.starts_with("_ibv_"))) {
            continue;
        }
        found.push_back({name, versions[i] >= first_named_version
                                   ? version_name(section, versions[i])
                                   : std::string()});
    }
    return found;
}

TEST(Symbols, HaveTheVersionsThatTheInstalledLibibverbsGivesThem) {
    const link_map* const softverbs = loaded("libsoftverbs.so");
    ASSERT_NE(softverbs, nullptr);
    const link_map* const real = loaded("libibverbs.so.1");
    ASSERT_NE(real, nullptr);
    const std::vector<Symbol> expected = verbs_defined_in(*real);
    const std::vector<Symbol> defined = verbs_defined_in(*softverbs);
    EXPECT_GT(defined.size(), 60U);
    for (const Symbol& symbol : defined) {
        for (const Symbol& other : expected) {
            const bool is_private = other.version.starts_with("IBVERBS_PRIVATE");
            if (other.name == symbol.name) {
                EXPECT_EQ(symbol.version, is_private ? std::string() : other.version)
                    << symbol.name << " in softverbs.map";
            }
        }
    }
}

/// Returns the names of the libraries that the loader loads for a library.
std::vector<std::string> needed_by(const link_map& map) {
    const auto* const strings = DynamicSection(map).table<char>(DT_STRTAB);
    std::vector<std::string> names;
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_NEEDED) {
            names.emplace_back(strings + entry->d_un.d_val);
        }
    }
    return names;
}

/// Returns the names of all functions and objects that a library defines for others.
std::vector<std::string> names_defined_in(const link_map& map) {
    const DynamicSection section(map);
    const auto* const symbols = section.table<ElfW(Sym)>(DT_SYMTAB);
    const auto* const strings = section.table<char>(DT_STRTAB);
    std::vector<std::string> names;
    const std::size_t count = symbol_count(section.table<std::uint32_t>(DT_GNU_HASH));
    for (std::size_t i = 1; i < count; ++i) {
        if (symbols[i].st_shndx != SHN_UNDEF && symbols[i].st_shndx != SHN_ABS) {
            names.emplace_back(strings + symbols[i].st_name);
        }
    }
    return names;
}

// Preloaded, the library must not decide which C++ library the program uses.
TEST(Symbols, OfTheCppLibraryAreNeitherNeededNorDefined) {
    if (address_sanitizer || thread_sanitizer) {
        GTEST_SKIP() << "the sanitizers need the shared C++ library";
    }
    const link_map* const softverbs = loaded("libsoftverbs.so");
    ASSERT_NE(softverbs, nullptr);
    EXPECT_THAT(needed_by(*softverbs),
                testing::IsSubsetOf({"libibverbs.so.1", "libm.so.6", "libc.so.6",
                                     "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}));
    const std::vector<std::string> names = names_defined_in(*softverbs);
    EXPECT_THAT(names, testing::Contains("softverbs_live"));
    EXPECT_THAT(names,
                testing::Each(testing::Not(testing::ContainsRegex("^(_Z|__cxa|_Unwind|__gxx)"))));
}

struct Version {
    const char* symbol;
    const char* version;
};

class VersionedLookup : public testing::TestWithParam<Version> {};

TEST_P(VersionedLookup, FindsSoftverbsWithAndWithoutTheVersion) {
    const auto& [symbol, version] = GetParam();
    const void* const versioned = ::dlvsym(RTLD_DEFAULT, symbol, version);
    EXPECT_THAT(file_of(versioned), testing::HasSubstr("libsoftverbs.so"));
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, symbol), versioned);
}

INSTANTIATE_TEST_SUITE_P(All, VersionedLookup,
                         testing::Values(Version{"ibv_get_device_list", "IBVERBS_1.1"},
                                         Version{"ibv_reg_mr", "IBVERBS_1.1"},
                                         Version{"ibv_create_comp_channel", "IBVERBS_1.0"},
                                         Version{"ibv_reg_mr_iova2", "IBVERBS_1.8"},
                                         Version{"ibv_query_ece", "IBVERBS_1.10"},
                                         Version{"_ibv_query_gid_ex", "IBVERBS_1.11"},
                                         Version{"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
                                         Version{"ibv_query_qp_data_in_order", "IBVERBS_1.14"},
                                         Version{"ibv_dm_export_dmabuf_fd", "IBVERBS_1.16"}),
                         [](const auto& parameter) { return std::string(parameter.param.symbol); });

TEST(Symbols, OfSoftverbsItselfHaveNoVersion) {
    EXPECT_EQ(::dlsym(RTLD_DEFAULT, "softverbs_live"), reinterpret_cast<void*>(&softverbs_live));
}

TEST(Symbols, OfAVersionThatDoesNotExistAreNotFound) {
    EXPECT_EQ(::dlvsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr", "IBVERBS_1.11"), nullptr);
}

TEST(Symbols, OfTheOldestInterfaceAreTheRealLibrarysAndReachTheDevices) {
    // In the old interface, a device structure begins with a pointer to the ibv_device.
    struct OldDevice {
        ibv_device* device;
    };
    const auto get_list = reinterpret_cast<OldDevice** (*)(int*)>(
        ::dlvsym(RTLD_DEFAULT, "ibv_get_device_list", "IBVERBS_1.0"));
    const auto get_name = reinterpret_cast<const char* (*)(OldDevice*)>(
        ::dlvsym(RTLD_DEFAULT, "ibv_get_device_name", "IBVERBS_1.0"));
    const auto free_list = reinterpret_cast<void (*)(OldDevice**)>(
        ::dlvsym(RTLD_DEFAULT, "ibv_free_device_list", "IBVERBS_1.0"));
    ASSERT_NE(get_list, nullptr);
    ASSERT_NE(get_name, nullptr);
    ASSERT_NE(free_list, nullptr);
    int count = 0;
    OldDevice** const list = get_list(&count);
    ASSERT_NE(list, nullptr);
    ASSERT_GE(count, 1);
    EXPECT_STREQ(get_name(list[0]), "soft0");
    free_list(list);
}

} // namespace
