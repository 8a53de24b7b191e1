// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace rdmabuf::detail {

/// A list of objects that were replaced, but that readers may still read. The objects are freed
/// after ReadSideSections::wait(), when no reader can read the objects any more.
class RetireList {
  public:
    class Node {
      public:
        virtual ~Node() = default;
        Node(const Node&) = delete;
        Node& operator=(const Node&) = delete;

      protected:
        Node() = default;

      private:
        friend class RetireList;
        std::unique_ptr<Node> next_;
    };

    RetireList() = default;
    RetireList(const RetireList&) = delete;
    RetireList& operator=(const RetireList&) = delete;
    ~RetireList() { free(); }

    void put(std::unique_ptr<Node> node) noexcept {
        node->next_ = std::move(first_);
        first_ = std::move(node);
        ++size_;
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Frees all objects in the list. Must be called after ReadSideSections::wait().
    void free() noexcept {
        while (first_ != nullptr) {
            first_ = std::move(first_->next_);
        }
        size_ = 0;
    }

  private:
    std::unique_ptr<Node> first_;
    std::size_t size_ = 0;
};

} // namespace rdmabuf::detail
