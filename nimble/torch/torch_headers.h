#pragma once
// The heavy headers of PyTorch, precompiled once for every target that uses them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
