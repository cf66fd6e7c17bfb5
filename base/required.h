// SPDX-License-Identifier: Apache-2.0
// Required: a field that a designated initializer must give. A Required field has no default value,
// so an initializer that omits it does not compile. Use it for the rows of tables. Conversions are
// implicit, so that a row and its readers look as if the field were a T.
#pragma once

#include <type_traits>
#include <utility>

namespace sluice {

template <typename T>
class Required {
 public:
  constexpr Required(T given) : value_(std::move(given)) {}  // NOLINT(google-explicit-constructor)
  // Arrays and literals that T accepts.
  template <typename From>
  requires(!std::is_same_v<From, T> && std::is_convertible_v<const From&, T> &&
           !std::is_arithmetic_v<
               T>) constexpr Required(const From& given)  // NOLINT(google-explicit-constructor)
      : value_(given) {}

  constexpr operator const T&() const { return value_; }  // NOLINT(google-explicit-constructor)
  constexpr const T& value() const { return value_; }
  constexpr const T* operator->() const { return &value_; }

 private:
  T value_;
};

}  // namespace sluice
