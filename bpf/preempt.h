/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs at tracepoints that are not preempted. */
#ifndef SHARNESS_PREEMPT_H
#define SHARNESS_PREEMPT_H

/*
 * From Linux 7.0 (commit a46023d5616e) a program at a tracepoint can be preempted, and the kernel starts none that is in
 * progress on the same processor: what other tasks do until it goes on would be missed. Written by the loader.
 */
const volatile __u32 preemptible;

/* From 6.10 and 6.14. */
extern void bpf_preempt_disable(void) __weak __ksym;
extern void bpf_preempt_enable(void) __weak __ksym;
extern void bpf_local_irq_save(unsigned long *flags) __weak __ksym;
extern void bpf_local_irq_restore(unsigned long *flags) __weak __ksym;

static __always_inline void hold(void)
{
	if (preemptible && bpf_local_irq_save)
		bpf_preempt_disable();
}

/* What was put off in the meantime would be made up for where preemption is allowed again, and the program is still in
 * progress there: a record that wakes its reader does that each time. Without interrupts it waits for the program's end. */
static __always_inline void release(void)
{
	unsigned long flags;

	if (preemptible && bpf_local_irq_save) {
		bpf_local_irq_save(&flags);
		bpf_preempt_enable();
		bpf_local_irq_restore(&flags);
	}
}

#define TRACEPOINT(name, program) \
	static __always_inline int at_##program(__u64 *ctx); \
	SEC("tp_btf/" #name) \
	int program(__u64 *ctx) \
	{ \
		hold(); \
		at_##program(ctx); \
		release(); \
		return 0; \
	} \
	static __always_inline int at_##program(__u64 *ctx)

/*
 * The kernel's own few instructions around a program are left, and whoever is preempted there blinds it on that
 * processor for a time slice. So system calls are looked at by two programs, one after the other: the first leaves a mark
 * with its thread, and the second looks where it finds none. Old marks, whose second program was not started, make room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} marks SEC(".maps");

static __always_inline bool looked_at(bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tid = task->pid;
	__u8 one = 1;

	if (again)
		return !bpf_map_delete_elem(&marks, &tid);
	if (preemptible)
		bpf_map_update_elem(&marks, &tid, &one, BPF_ANY);
	return false;
}

#endif
