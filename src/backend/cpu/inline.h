// What kernel sources mark their helpers with: inlined at every optimisation level, so that accumulators stay
// in registers.
#pragma once

#define LONGSPAN_INLINE __attribute__((always_inline)) inline
