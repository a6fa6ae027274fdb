#pragma once  // device.h, which comes first, has what kernels want of it
