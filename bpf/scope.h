/* SPDX-License-Identifier: GPL-2.0-only */
/* Whom the programs follow. */
#ifndef SHARNESS_SCOPE_H
#define SHARNESS_SCOPE_H

/* Written by the loader. */
const volatile __u32 slots;

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} cgroups SEC(".maps");

static __always_inline int current_slot(void)
{
	for (int i = 0; i < MAX_SLOTS; i++) {
		if (i >= slots)
			break;
		if (bpf_current_task_under_cgroup(&cgroups, i) == 1)
			return i;
	}
	return -1;
}

#endif
