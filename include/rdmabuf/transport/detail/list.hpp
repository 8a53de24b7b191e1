// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <iterator>

namespace rdmabuf::transport::detail {

/// The links of one object in a List.
template <class T>
struct Link {
    T* next = nullptr;
    /// The pointer that points to this object: `next` of the previous object, or List::first_.
    T** to_this = nullptr;
};

/// A doubly linked list. Each object contains its own links, so that the list allocates no memory.
/// The list does not own its objects.
/// @tparam Member  the member of T that holds the links of this list
template <class T, Link<T> T::*Member>
class List {
  public:
    /// For range-based for loops, whose body may remove the current object from the list.
    struct Iterator {
        explicit Iterator(T* first) noexcept
            : item(first), after(first == nullptr ? nullptr : next(first)) {}
        [[nodiscard]] T& operator*() const noexcept { return *item; }
        Iterator& operator++() noexcept { return *this = Iterator(after); }
        [[nodiscard]] bool operator==(std::default_sentinel_t) const noexcept {
            return item == nullptr;
        }

        T* item;
        T* after;
    };

    constexpr List() noexcept = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    ~List() = default;

    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] T* front() const noexcept { return first_; }
    [[nodiscard]] Iterator begin() const noexcept { return Iterator(first_); }
    [[nodiscard]] static std::default_sentinel_t end() noexcept { return {}; }
    [[nodiscard]] static T* next(const T* item) noexcept { return (item->*Member).next; }

    void push_back(T* item) noexcept {
        item->*Member = {.next = nullptr, .to_this = end_};
        *end_ = item;
        end_ = &(item->*Member).next;
    }
    void push_front(T* item) noexcept {
        item->*Member = {.next = first_, .to_this = &first_};
        to_next(item) = &(item->*Member).next;
        first_ = item;
    }
    void remove(T* item) noexcept {
        const Link<T>& link = item->*Member;
        to_next(item) = link.to_this;
        *link.to_this = link.next;
    }
    /// Removes and returns the first object; nullptr if the list is empty.
    T* pop_front() noexcept {
        T* const item = first_;
        if (item != nullptr) {
            remove(item);
        }
        return item;
    }
    void clear() noexcept {
        first_ = nullptr;
        end_ = &first_;
    }

  private:
    /// Returns the pointer to update when the object after @p item gets another predecessor:
    /// `to_this` of that object, or end_ if @p item is the last object.
    [[nodiscard]] T**& to_next(const T* item) noexcept {
        T* const next = (item->*Member).next;
        return next == nullptr ? end_ : (next->*Member).to_this;
    }

    T* first_ = nullptr;
    /// Points to the null pointer at the end of the list.
    T** end_ = &first_;
};

} // namespace rdmabuf::transport::detail
