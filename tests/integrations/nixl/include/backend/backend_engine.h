// SPDX-License-Identifier: BSD-3-Clause
// The part of NIXL's backend interface that integrations/nixl uses, written for its tests: the
// names and signatures are those of NIXL (src/api/cpp/backend), everything else is left out. If
// NIXL's own headers are installed, they are used instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };
enum nixl_status_t {
    NIXL_IN_PROG = 1,
    NIXL_SUCCESS = 0,
    NIXL_ERR_NOT_POSTED = -1,
    NIXL_ERR_INVALID_PARAM = -2,
    NIXL_ERR_BACKEND = -3,
    NIXL_ERR_NOT_FOUND = -4,
    NIXL_ERR_MISMATCH = -5,
    NIXL_ERR_NOT_ALLOWED = -6,
    NIXL_ERR_REPOST_ACTIVE = -7,
    NIXL_ERR_NOT_SUPPORTED = -9,
    NIXL_ERR_REMOTE_DISCONNECT = -10,
    NIXL_ERR_CANCELED = -11
};

using nixl_backend_t = std::string;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_mem_list_t = std::vector<nixl_mem_t>;
using notif_list_t = std::vector<std::pair<std::string, std::string>>;

struct nixlBackendOptionalArgs {
    std::string notifMsg;
    bool hasNotif = false;
    std::string customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

class nixlBackendInitParams {
  public:
    std::string localAgent;
    nixl_backend_t type;
    nixl_b_params_t* customParams = nullptr;
    bool enableProgTh = false;
    std::uint64_t pthrDelay = 0;
};

class nixlBackendReqH {
  public:
    virtual ~nixlBackendReqH() = default;
};
class nixlBackendMD {
  public:
    explicit nixlBackendMD(bool is_private) : isPrivateMD(is_private) {}
    virtual ~nixlBackendMD() = default;

  protected:
    bool isPrivateMD;
};

class nixlBasicDesc {
  public:
    nixlBasicDesc(std::uintptr_t address, std::size_t length, std::uint64_t device)
        : addr(address), len(length), devId(device) {}
    std::uintptr_t addr;
    std::size_t len;
    std::uint64_t devId;
};
class nixlBlobDesc : public nixlBasicDesc {
  public:
    nixlBlobDesc(std::uintptr_t address, std::size_t length, std::uint64_t device, std::string blob)
        : nixlBasicDesc(address, length, device), metaInfo(std::move(blob)) {}
    std::string metaInfo;
};
class nixlMetaDesc : public nixlBasicDesc {
  public:
    nixlMetaDesc(std::uintptr_t address, std::size_t length, std::uint64_t device,
                 nixlBackendMD* metadata)
        : nixlBasicDesc(address, length, device), metadataP(metadata) {}
    nixlBackendMD* metadataP;
};

template <class T>
class nixlDescList {
  public:
    explicit nixlDescList(nixl_mem_t memory) : type(memory) {}
    [[nodiscard]] nixl_mem_t getType() const { return type; }
    [[nodiscard]] int descCount() const { return static_cast<int>(descs.size()); }
    const T& operator[](std::size_t index) const { return descs[index]; }
    void addDesc(const T& desc) { descs.push_back(desc); }

  private:
    nixl_mem_t type;
    std::vector<T> descs;
};
using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;

class nixlBackendEngine {
  public:
    explicit nixlBackendEngine(const nixlBackendInitParams* init) : localAgent(init->localAgent) {}
    nixlBackendEngine(const nixlBackendEngine&) = delete;
    nixlBackendEngine& operator=(const nixlBackendEngine&) = delete;
    virtual ~nixlBackendEngine() = default;

    [[nodiscard]] bool getInitErr() const noexcept { return initErr; }

    [[nodiscard]] virtual bool supportsRemote() const = 0;
    [[nodiscard]] virtual bool supportsLocal() const = 0;
    [[nodiscard]] virtual bool supportsNotif() const = 0;
    [[nodiscard]] virtual nixl_mem_list_t getSupportedMems() const = 0;
    virtual nixl_status_t registerMem(const nixlBlobDesc&, const nixl_mem_t&, nixlBackendMD*&) = 0;
    virtual nixl_status_t deregisterMem(nixlBackendMD*) = 0;
    virtual nixl_status_t connect(const std::string&) = 0;
    virtual nixl_status_t disconnect(const std::string&) = 0;
    virtual nixl_status_t unloadMD(nixlBackendMD*) = 0;
    virtual nixl_status_t prepXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                   const nixl_meta_dlist_t&, const std::string&, nixlBackendReqH*&,
                                   const nixl_opt_b_args_t* = nullptr) const = 0;
    virtual nixl_status_t postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                   const nixl_meta_dlist_t&, const std::string&, nixlBackendReqH*&,
                                   const nixl_opt_b_args_t* = nullptr) const = 0;
    virtual nixl_status_t checkXfer(nixlBackendReqH*) const = 0;
    virtual nixl_status_t releaseReqH(nixlBackendReqH*) const = 0;
    virtual nixl_status_t getPublicData(const nixlBackendMD*, std::string&) const = 0;
    virtual nixl_status_t getConnInfo(std::string&) const = 0;
    virtual nixl_status_t loadRemoteConnInfo(const std::string&, const std::string&) = 0;
    virtual nixl_status_t loadRemoteMD(const nixlBlobDesc&, const nixl_mem_t&, const std::string&,
                                       nixlBackendMD*&) = 0;
    virtual nixl_status_t loadLocalMD(nixlBackendMD*, nixlBackendMD*&) = 0;
    virtual nixl_status_t getNotifs(notif_list_t&) = 0;
    virtual nixl_status_t genNotif(const std::string&, const std::string&) const = 0;

  protected:
    bool initErr = false;
    const std::string localAgent;
};
