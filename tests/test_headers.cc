// SPDX-License-Identifier: Apache-2.0
// This file compiles the headers that tests share.
