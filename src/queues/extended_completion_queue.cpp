// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/extended_completion_queue.hpp>

#include "base/text.hpp"

namespace rdmabuf {
namespace {

constexpr const char* create_function = "ibv_create_cq_ex";

constexpr std::array<std::pair<CompletionFields, const char*>, 9> field_names{{
    {CompletionFields::byte_length, "byte_length"},
    {CompletionFields::immediate, "immediate"},
    {CompletionFields::queue_pair, "queue_pair"},
    {CompletionFields::source, "source"},
    {CompletionFields::timestamp, "timestamp"},
    {CompletionFields::wallclock, "wallclock"},
    {CompletionFields::cvlan, "cvlan"},
    {CompletionFields::flow_tag, "flow_tag"},
    {CompletionFields::tag_matching, "tag_matching"},
}};

std::string explain(const Context& context, const ExtendedCompletionQueueOptions& options,
                    int error) {
    std::string hint = "depth " + std::to_string(options.depth) + " of at most " +
                       std::to_string(context.attributes().native.orig_attr.max_cqe) + ", vector " +
                       std::to_string(options.vector) + " of " +
                       std::to_string(context.native()->num_comp_vectors) + ", fields " +
                       to_string(options.fields) +
                       (options.single_threaded ? ", single_threaded" : "") +
                       (options.ignore_overrun ? ", ignore_overrun" : "") +
                       (options.parent_domain != nullptr ? ", parent_domain" : "") + " on " +
                       context.device_name();
    if (error == EOPNOTSUPP) {
        hint +=
            ": its provider has no extended completion queues, or does not support these options";
    }
    return hint;
}

ibv_cq_init_attr_ex init_attributes(const ExtendedCompletionQueueOptions& options) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = options.depth;
    attributes.cq_context = options.cq_context;
    attributes.channel =
        options.channel != nullptr
            ? detail::native_of(*options.channel, create_function, "CompletionChannel")
            : nullptr;
    attributes.comp_vector = static_cast<std::uint32_t>(options.vector);
    attributes.wc_flags = static_cast<std::uint64_t>(options.fields);
    if (options.single_threaded) {
        attributes.flags |= IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    }
    if (options.ignore_overrun) {
        attributes.flags |= IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    }
    if (attributes.flags != 0) {
        attributes.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
    }
    if (options.parent_domain != nullptr) {
        attributes.parent_domain =
            detail::native_of(*options.parent_domain, create_function, "ParentDomain");
        attributes.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
    }
    return attributes;
}

ibv_cq* create(const Context& context, const ExtendedCompletionQueueOptions& options) {
    ibv_context* const native = detail::native_of(context, create_function, "Context");
    ibv_cq_init_attr_ex attributes = init_attributes(options);
    // Some providers accept a negative completion vector or a depth of 0. This library therefore
    // rejects both values itself.
    if (options.depth == 0 || options.vector < 0) {
        throw Error(EINVAL, create_function, explain(context, options, EINVAL));
    }
    errno = 0;
    ibv_cq_ex* const cq =
        detail::check_pointer(ibv_create_cq_ex(native, &attributes), create_function,
                              [&](int error) { return explain(context, options, error); });
    return ibv_cq_ex_to_cq(cq);
}

} // namespace

ExtendedCompletionQueue::ExtendedCompletionQueue(const Context& context,
                                                 const ExtendedCompletionQueueOptions& options)
    : CompletionQueue([&] {
          Handle::unique owner = parents_of(context, options.channel, options.parent_domain);
          owner.reset(create(context, options));
          return Handle(std::move(owner));
      }()) {}

ExtendedCompletionQueue ExtendedCompletionQueue::adopt(const Context& context, ibv_cq_ex* cq,
                                                       const CompletionChannel* channel) {
    Handle::unique owner = parents_of(context, channel, nullptr);
    owner.reset(ibv_cq_ex_to_cq(cq));
    return ExtendedCompletionQueue(Handle(std::move(owner)));
}

ExtendedCompletionQueue ExtendedCompletionQueue::borrow(ibv_cq_ex* cq) {
    return ExtendedCompletionQueue(borrow_handle(ibv_cq_ex_to_cq(cq)));
}

WorkCompletion CompletionBatch::work_completion() const noexcept {
    WorkCompletion completion{};
    completion.wr_id = wr_id();
    completion.status = status();
    if (cq_->read_qp_num != nullptr) {
        completion.qp_num = ibv_wc_read_qp_num(cq_);
    }
    if (!succeeded()) {
        completion.vendor_err = vendor_error();
        return completion;
    }
    completion.opcode = opcode();
    completion.wc_flags = flags();
    if (cq_->read_byte_len != nullptr) {
        completion.byte_len = ibv_wc_read_byte_len(cq_);
    }
    constexpr unsigned has_immediate = IBV_WC_WITH_IMM | IBV_WC_WITH_INV;
    if (cq_->read_imm_data != nullptr && (completion.wc_flags & has_immediate) != 0) {
        completion.imm_data = ibv_wc_read_imm_data(cq_);
    }
    // Only the completion of a receive has a sender. The opcodes of tag operations have the bit
    // IBV_WC_RECV too, so they must be excluded.
    const bool is_tag_operation = completion.opcode == IBV_WC_TM_ADD ||
                                  completion.opcode == IBV_WC_TM_DEL ||
                                  completion.opcode == IBV_WC_TM_SYNC;
    if ((completion.opcode & IBV_WC_RECV) == 0 || is_tag_operation) {
        return completion;
    }
    if (cq_->read_src_qp != nullptr) {
        completion.src_qp = ibv_wc_read_src_qp(cq_);
    }
    if (cq_->read_slid != nullptr) {
        completion.slid = static_cast<std::uint16_t>(ibv_wc_read_slid(cq_));
    }
    if (cq_->read_sl != nullptr) {
        completion.sl = ibv_wc_read_sl(cq_);
    }
    if (cq_->read_dlid_path_bits != nullptr) {
        completion.dlid_path_bits = ibv_wc_read_dlid_path_bits(cq_);
    }
    return completion;
}

std::string to_string(CompletionFields fields) {
    std::string text;
    auto rest = static_cast<std::uint32_t>(fields);
    const auto append = [&text](const std::string& name) {
        text.append(text.empty() ? "" : "|").append(name);
    };
    for (const auto& [field, name] : field_names) {
        if (has(fields, field)) {
            append(name);
            rest &= ~static_cast<std::uint32_t>(field);
        }
    }
    if (rest != 0) {
        append(detail::hexadecimal(rest));
    }
    return text.empty() ? "none" : text;
}

} // namespace rdmabuf
