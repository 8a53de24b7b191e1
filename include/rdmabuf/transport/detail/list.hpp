// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace rdmabuf::transport::detail {

/// The pointers of one object to the previous and the next object in a List.
template <class T>
struct Link {
    T* next = nullptr;
    T* previous = nullptr;
};

/// A doubly linked list. Each object contains its own links, so that the list allocates no memory.
/// The list does not own its objects.
/// @tparam Member  the member of T that holds the links of this list
template <class T, Link<T> T::*Member>
class List {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] T* front() const noexcept { return first_; }
    [[nodiscard]] static T* next(const T* item) noexcept { return (item->*Member).next; }

    void push_back(T* item) noexcept {
        item->*Member = {.next = nullptr, .previous = last_};
        (last_ == nullptr ? first_ : (last_->*Member).next) = item;
        last_ = item;
    }
    void push_front(T* item) noexcept {
        item->*Member = {.next = first_, .previous = nullptr};
        (first_ == nullptr ? last_ : (first_->*Member).previous) = item;
        first_ = item;
    }
    void remove(T* item) noexcept {
        const Link<T>& link = item->*Member;
        (link.previous == nullptr ? first_ : (link.previous->*Member).next) = link.next;
        (link.next == nullptr ? last_ : (link.next->*Member).previous) = link.previous;
    }
    /// Removes and returns the first object; nullptr if the list is empty.
    T* pop_front() noexcept {
        T* const item = first_;
        if (item != nullptr) {
            first_ = (item->*Member).next;
            (first_ == nullptr ? last_ : (first_->*Member).previous) = nullptr;
        }
        return item;
    }
    void clear() noexcept { first_ = last_ = nullptr; }

  private:
    T* first_ = nullptr;
    T* last_ = nullptr;
};

} // namespace rdmabuf::transport::detail
