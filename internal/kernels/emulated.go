package main

// emulated takes the place of the processor where there is no KVM. One only: two of them lose an int3 while the kernel
// patches itself, as it does each time a tracepoint is attached, and die of it. It counts its instructions, one a
// nanosecond of the machine's time, so that how busy the host is changes nothing inside: no test runs out of time
// because of it. Five levels of page tables cost time; and after cmpxchg16b QEMU 7.2 leaves garbage in EFLAGS, which
// kernels since 6.6 (whose allocator uses it) die of at the next iret.
var emulated = []string{"-accel", "tcg,thread=single", "-icount", "shift=0", "-smp", "1", "-cpu", "max,la57=off,cx16=off"}
