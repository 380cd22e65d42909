/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs at tracepoints that are not preempted. */
#ifndef SHARNESS_PREEMPT_H
#define SHARNESS_PREEMPT_H

/*
 * From Linux 7.0 (commit a46023d5616e) a program at a tracepoint can be preempted, and the kernel starts none that is in
 * progress on the same processor: what another task does meanwhile would be missed. What is left of such moments is the
 * way to the first line here, and back. Kernels before 6.10 have no such function and need none.
 */
extern void bpf_preempt_disable(void) __weak __ksym;
extern void bpf_preempt_enable(void) __weak __ksym;

#define TRACEPOINT(name, program) \
	static __always_inline int at_##name(__u64 *ctx); \
	SEC("tp_btf/" #name) \
	int program(__u64 *ctx) \
	{ \
		if (bpf_preempt_disable) \
			bpf_preempt_disable(); \
		at_##name(ctx); \
		if (bpf_preempt_enable) \
			bpf_preempt_enable(); \
		return 0; \
	} \
	static __always_inline int at_##name(__u64 *ctx)

#endif
