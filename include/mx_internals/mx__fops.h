/*
 * mx_internals/mx__fops.h - where configure scripts look for mx_open_board. It is in mx_io.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MX__FOPS_H
#define MX__FOPS_H

#include "../mx_io.h"

#endif /* MX__FOPS_H */
