/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a security module answered, from the hook that saw it (hooks.bpf.c) to the exit of the same system call. Where no
 * hook is attached the map stays empty.
 */
#ifndef SHARNESS_VERDICT_H
#define SHARNESS_VERDICT_H

#define VERDICT_ARGS 2

/* The call that it was given in: one that is like it in all of this was made, and refused, in the same way. */
struct verdict {
	__u64 args[VERDICT_ARGS];
	__u32 nr;
	__s32 ret;
};

/* By thread. Old ones, whose call is not reported, make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct verdict);
} verdicts SEC(".maps");

/* Whether a security module gave this answer in this call. */
static __always_inline bool take_verdict(__u32 nr, __s32 ret, const __u64 *args)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tid = task->pid;
	struct verdict *v = bpf_map_lookup_elem(&verdicts, &tid);
	bool same;

	if (!v)
		return false;
	same = v->nr == nr && v->ret == ret && v->args[0] == args[0] && v->args[1] == args[1];
	bpf_map_delete_elem(&verdicts, &tid);
	return same;
}

#endif
