package main

// emulated is the processor where there is no KVM. Five levels of page tables cost time; and after cmpxchg16b QEMU 7.2
// leaves garbage in EFLAGS, which kernels since 6.6 (whose allocator uses it) die of at the next iret.
const emulated = "max,la57=off,cx16=off"
