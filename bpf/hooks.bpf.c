//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only

/*
 * Who refused: all security modules together answer through these functions, Landlock among them, and a filter or the rights
 * of a file do not. Not every kernel lets programs be attached here, and nothing depends on it: without them the cause of a
 * refusal is inferred. Names and arguments differ between kernels, so only the answer is looked at.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "scope.h"
#include "verdict.h"

char _license[] SEC("license") = "GPL";

static __always_inline int note(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs;
	struct verdict v = {};
	__u64 answer = 0;
	__u32 tid = task->pid;

	if (bpf_get_func_ret(ctx, &answer) || (__s32)answer >= 0 || current_slot() < 0)
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
	v.args[0] = BPF_CORE_READ(regs, di);
	v.args[1] = BPF_CORE_READ(regs, si);
	v.nr = BPF_CORE_READ(regs, orig_ax);
#else
	v.args[0] = BPF_CORE_READ(regs, orig_x0);
	v.args[1] = BPF_CORE_READ(regs, regs[1]);
	v.nr = BPF_CORE_READ(regs, syscallno);
#endif
	v.ret = answer;
	bpf_map_update_elem(&verdicts, &tid, &v, BPF_ANY);
	return 0;
}

#define HOOK(name) \
	SEC("fexit/security_" #name) \
	int name(void *ctx) \
	{ \
		return note(ctx); \
	}

/* Few, because each takes its time to be detached, and none that is asked for each message or ioctl of the machine. */
HOOK(file_open) /* to be executed too */
HOOK(task_kill)
HOOK(ptrace_access_check)
HOOK(socket_connect)
HOOK(socket_bind)
HOOK(unix_stream_connect)
HOOK(unix_may_send)
