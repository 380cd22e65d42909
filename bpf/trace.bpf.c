//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only

/*
 * What a traced cgroup runs, and what it was refused. Nothing here decides anything.
 *
 * Every program asks first whether the task is below one of the cgroups, but for sys_exit, which asks before that
 * whether the call failed with an errno that counts: it runs after every system call of the machine.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.h"
#include "path.h"
#include "preempt.h"
#include "scope.h"
#include "verdict.h"

char _license[] SEC("license") = "GPL";

#define EPERM 1
#define ENOENT 2
#define EACCES 13
#define EBUSY 16
#define EROFS 30
#define ENOSYS 38
#define ENETUNREACH 101
#define ECONNREFUSED 111
#define EHOSTUNREACH 113
#define MAX_ERRNO 4095
#define AT_FDCWD -100
#define PROT_EXEC 4
#define SETID_BITS 06000
#define NEW_FILE (0100 | 020000000) /* O_CREAT, and O_TMPFILE without its O_DIRECTORY */
#define VM_EXEC 4
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define SIGSYS 31
#define SYS_SECCOMP 1

/* Written by the loader. */
const volatile __u32 want_maps;
const volatile __u32 want_tried;
const volatile __u64 seed[2];
const volatile struct call calls[MAX_CALLS];

/* Read by user space through the mapping of .bss, without a system call that a confined process lacks. */
struct counts execs, denials[CLASSES];
/* Calls of traced tasks that the second program looked at, because the first was not started. */
__u64 caught;

/* Records go out as they are made where learning waits for them, and are fetched by the clock otherwise: waking the
 * reader costs more than the record. Past this mark it is woken. */
#define EXECS_SIZE (1 << 20)
#define EXECS_MARK (EXECS_SIZE / 4)
#define DENIALS_SIZE (1 << 18)
/* From here on repetitions of a key are shed, so that the first of another one finds room. */
#define DENIALS_MARK (DENIALS_SIZE / 4)
/* Records of one key that always get through in a window, and the window. */
#define SHED_AFTER 16
#define SHED_WINDOW_NS 1000000000ull
#define KEY_WORDS 64

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EXECS_SIZE);
} exec_ring SEC(".maps");

#define DENIAL_RING(name) \
	struct { \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, DENIALS_SIZE); \
	} name SEC(".maps")

DENIAL_RING(denial_exec_ring);
DENIAL_RING(denial_process_ring);
DENIAL_RING(denial_net_ring);
DENIAL_RING(denial_file_ring);

struct repeat {
	__u64 window;
	__u32 seen;
	__u32 shed;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct repeat);
} repeats SEC(".maps");

/* What was tried already, by the key of a denial. A program that looks for one file in a loop makes one record; what
 * falls out of here makes another. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u8);
} tried SEC(".maps");

/* A type that stands only on a stack is not in the object; package agent has to know it. */
const struct life *unused_life __attribute__((unused));

static __always_inline __u32 pid_inside(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	int nr = 0;

	bpf_core_read(&nr, sizeof(nr), &pid->numbers[level].nr);
	return nr;
}

/* Who a task is. The ids are the leader's but for tid and comm, which are the thread's. */
static __always_inline void identify(struct process *p, struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct task_struct *parent = BPF_CORE_READ(leader, real_parent, group_leader);

	p->pid = BPF_CORE_READ(task, tgid);
	p->tid = BPF_CORE_READ(task, pid);
	p->start_ns = BPF_CORE_READ(leader, start_boottime);
	p->ns_pid = pid_inside(leader);
	p->parent = BPF_CORE_READ(parent, tgid);
	p->parent_start_ns = BPF_CORE_READ(parent, start_boottime);
	p->uid = BPF_CORE_READ(task, cred, uid.val);
	p->euid = BPF_CORE_READ(task, cred, euid.val);
	bpf_core_read(p->comm, sizeof(p->comm), &task->comm);
}

static __always_inline void begin(struct head *h, enum kind kind, __u32 slot, struct task_struct *who)
{
	h->time_ns = bpf_ktime_get_boot_ns();
	h->kind = kind;
	h->slot = slot;
	h->flags = 0;
	for (int i = 0; i < TEXTS; i++)
		h->text_len[i] = 0;
	identify(&h->who, who);
}

static __always_inline void add_file(__u32 key, enum text which, struct file *file)
{
	add_path(key, which, BPF_CORE_READ(file, f_path.dentry), BPF_CORE_READ(file, f_path.mnt));
}

static __always_inline __u64 exec_wakeup(void)
{
	return bpf_ringbuf_query(&exec_ring, BPF_RB_AVAIL_DATA) > EXECS_MARK ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __always_inline void emit_exec(void *record, __u64 size)
{
	__sync_fetch_and_add(&execs.produced, 1);
	if (bpf_ringbuf_output(&exec_ring, record, size, exec_wakeup()))
		__sync_fetch_and_add(&execs.lost, 1);
}

TRACEPOINT(sched_process_fork, process_fork)
{
	struct task_struct *child = (struct task_struct *)ctx[1];
	struct life f = {};
	int slot;

	if (child->pid != child->tgid) /* a thread */
		return 0;
	slot = current_slot();
	if (slot < 0)
		return 0;
	begin(&f.head, KIND_FORK, slot, child);
	emit_exec(&f, sizeof(f));
	return 0;
}

TRACEPOINT(sched_process_exit, process_exit)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	struct life e = {};
	int slot;

	if (task->signal->live.counter) /* other threads go on */
		return 0;
	slot = current_slot();
	if (slot < 0)
		return 0;
	begin(&e.head, KIND_EXIT, slot, task);
	e.code = task->signal->group_exit_code ?: task->exit_code;
	emit_exec(&e, sizeof(e));
	return 0;
}

static __always_inline struct scratch *begin_event(__u32 key, enum kind kind, __u32 slot)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &key);

	if (!s)
		return 0;
	__builtin_memset(&s->ev, 0, sizeof(s->ev));
	begin(&s->ev.head, kind, slot, bpf_get_current_task_btf());
	return s;
}

static __always_inline __u64 event_size(struct scratch *s)
{
	return sizeof(s->ev) + text_end(&s->ev.head);
}

static __always_inline void add_exe(__u32 key)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *exe = BPF_CORE_READ(task, mm, exe_file);

	if (exe)
		add_file(key, TEXT_EXE, exe);
}

TRACEPOINT(sched_process_exec, process_exec)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	struct linux_binprm *bprm = (struct linux_binprm *)ctx[2];
	struct scratch *s;
	struct file *exe;
	int slot = current_slot();

	if (slot < 0)
		return 0;
	s = begin_event(SCRATCH_EXEC, KIND_EXEC, slot);
	if (!s)
		return 0;
	s->ev.args[0] = (__u32)ctx[1];
	exe = BPF_CORE_READ(task, mm, exe_file);
	if (exe) {
		describe(&s->ev.file, BPF_CORE_READ(exe, f_inode));
		s->ev.head.flags |= FLAG_FILE;
		add_file(SCRATCH_EXEC, TEXT_EXE, exe);
	}
	add_text(s, TEXT_ASKED, BPF_CORE_READ(bprm, filename), false);
	add_text(s, TEXT_BASE, BPF_CORE_READ(bprm, interp), false);
	emit_exec(&s->ev, event_size(s));
	return 0;
}

/* The arguments, from the registers as they were saved at entry: seccomp's refusals never reach sys_enter. */
static __always_inline void save_args(struct event *ev, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	ev->args[0] = regs->di;
	ev->args[1] = regs->si;
	ev->args[2] = regs->dx;
	ev->args[3] = regs->r10;
	ev->args[4] = regs->r8;
	ev->args[5] = regs->r9;
#else
	ev->args[0] = regs->orig_x0;
	ev->args[1] = regs->regs[1];
	ev->args[2] = regs->regs[2];
	ev->args[3] = regs->regs[3];
	ev->args[4] = regs->regs[4];
	ev->args[5] = regs->regs[5];
#endif
}

/* The whole register: the kernel calls by its lower half (do_syscall_64), and nothing of a program sets the upper. */
static __always_inline __u64 call_number(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->orig_ax;
#else
	return (__u32)regs->syscallno;
#endif
}

static __always_inline __u64 third_arg(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->dx;
#else
	return regs->regs[2];
#endif
}

static __always_inline __u64 second_arg(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->si;
#else
	return regs->regs[1];
#endif
}

static __always_inline __u64 fourth_arg(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->r10;
#else
	return regs->regs[3];
#endif
}

/* Whether a call that opens files would make one with a set-id bit. Without O_CREAT or O_TMPFILE the mode is nobody's. */
static __always_inline bool makes_setid(struct pt_regs *regs, int mode)
{
	switch (mode) {
	case 1: return second_arg(regs) & SETID_BITS;
	case 2: return second_arg(regs) & NEW_FILE && third_arg(regs) & SETID_BITS;
	}
	return third_arg(regs) & NEW_FILE && fourth_arg(regs) & SETID_BITS;
}

/* A call by the numbers of the 32-bit ABI, which mean something else. The domain's filter kills those. */
static __always_inline bool foreign_abi(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

#if defined(__TARGET_ARCH_x86)
	return task->thread_info.status & 2; /* TS_COMPAT */
#else
	return task->thread_info.flags & (1 << 22); /* TIF_32BIT */
#endif
}

static __always_inline __u64 arg(struct event *ev, int i)
{
	switch (i) {
	case 0: return ev->args[0];
	case 1: return ev->args[1];
	case 2: return ev->args[2];
	case 3: return ev->args[3];
	case 4: return ev->args[4];
	}
	return ev->args[5];
}

static __always_inline void add_socket(struct event *ev, struct file *file)
{
	struct socket *sock = BPF_CORE_READ(file, private_data);

	ev->sock_family = BPF_CORE_READ(sock, sk, __sk_common.skc_family);
	ev->sock_type = BPF_CORE_READ(sock, type);
	ev->sock_protocol = BPF_CORE_READ(sock, sk, sk_protocol);
	ev->head.flags |= FLAG_SOCKET;
}

static __always_inline void add_address(struct scratch *s, __u64 addr, __u64 len)
{
	__u32 off = text_end(&s->ev.head);

	if (!addr || !len)
		return;
	if (len > ADDR_MAX)
		len = ADDR_MAX;
	if (off > TEXT_ROOM - TEXT_MAX)
		return;
	s->ev.head.flags |= FLAG_ADDR;
	if (bpf_probe_read_user(&s->text[off], len, (void *)addr)) {
		s->ev.head.flags |= FLAG_UNREADABLE << (4 * TEXT_ASKED);
		return;
	}
	s->ev.head.text_len[TEXT_ASKED] = len;
}

/* The file behind an address. Runs with the lock of the mappings held, so that it cannot go away. */
static long add_mapping(struct task_struct *task, struct vm_area_struct *vma, void *ctx)
{
	__u32 key = SCRATCH_EXIT;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &key);
	struct file *file = vma->vm_file;

	if (!s || !file || (s->ev.head.kind == KIND_MAP && !(vma->vm_flags & VM_EXEC)))
		return 0;
	describe(&s->ev.file, BPF_CORE_READ(file, f_inode));
	s->ev.head.flags |= FLAG_FILE;
	if (on_noexec(file))
		s->ev.head.flags |= FLAG_NOEXEC;
	add_file(key, TEXT_BASE, file);
	return 0;
}

/* What was asked for, as far as the call's arguments say it. */
static __always_inline void add_target(struct scratch *s, __u32 key, const volatile struct call *call)
{
	struct event *ev = &s->ev;
	struct file *file = 0;
	int dirfd = AT_FDCWD;
	char first = 0;

	if (call->path >= 0) {
		add_text(s, TEXT_ASKED, (void *)arg(ev, call->path), true);
		bpf_probe_read_user(&first, 1, (void *)arg(ev, call->path));
		if (call->dirfd >= 0)
			dirfd = arg(ev, call->dirfd);
	}
	if (call->addr >= 0) {
		__u64 addr = arg(ev, call->addr), len = arg(ev, call->addr + 1);

		if (call->flags & CALL_MSGHDR) {
			struct user_msghdr msg = {};

			bpf_probe_read_user(&msg, sizeof(msg), (void *)addr);
			addr = (__u64)msg.msg_name;
			len = (__u32)msg.msg_namelen;
		}
		add_address(s, addr, (__u32)len);
	}
	if (call->flags & CALL_VMA)
		bpf_find_vma(bpf_get_current_task_btf(), ev->args[0], add_mapping, &key, 0);
	if (call->fd >= 0)
		file = file_of(arg(ev, call->fd));
	else if (call->path >= 0 && first != '/' && dirfd != AT_FDCWD)
		file = file_of(dirfd);
	if (file) {
		struct inode *inode = BPF_CORE_READ(file, f_inode);

		describe(&ev->file, inode);
		ev->head.flags |= FLAG_FILE;
		if (on_noexec(file))
			ev->head.flags |= FLAG_NOEXEC;
		if ((ev->file.mode & S_IFMT) == S_IFSOCK)
			add_socket(ev, file);
		else
			add_file(key, TEXT_BASE, file);
	} else if (call->path >= 0 && first != '/' && dirfd == AT_FDCWD) {
		struct task_struct *task = bpf_get_current_task_btf();

		add_path(key, TEXT_BASE, BPF_CORE_READ(task, fs, pwd.dentry), BPF_CORE_READ(task, fs, pwd.mnt));
	}
}

/* A list of strings of the program, as far as it was read. */
struct list {
	__u64 from;
	__u32 start; /* where it begins in scratch.text */
	__u32 len;
	__u32 flags;
};

static long list_step(__u32 i, void *ctx)
{
	struct list *l = ctx;
	__u32 key = SCRATCH_EXIT, off = l->start + l->len;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &key);
	void *from = 0;
	long n;

	if (!s || off > TEXT_ROOM - TEXT_MAX + ARGV_MAX * ARG_MAX)
		return 1;
	if (bpf_probe_read_user(&from, sizeof(from), (void *)(l->from + i * sizeof(from)))) {
		l->flags |= FLAG_UNREADABLE;
		return 1;
	}
	if (!from)
		return 1;
	if (i == ARGV_MAX) {
		l->flags |= FLAG_TRUNCATED;
		return 1;
	}
	n = bpf_probe_read_user_str(&s->text[off], ARG_MAX, from);
	if (!n) { /* an empty string, before Linux 6.13: strncpy_from_user_nofault() did not count its NUL */
		s->text[off] = 0;
		n = 1;
	}
	if (n < 1 || n > ARG_MAX) {
		l->flags |= FLAG_UNREADABLE;
		return 1;
	}
	if (n == ARG_MAX)
		l->flags |= FLAG_TRUNCATED;
	l->len += n;
	return 0;
}

/*
 * What else a denial's arguments say. Another thread may have rewritten it since the kernel looked, and a refused exec
 * has left the program's memory as it was.
 */
static __noinline int add_more(__u64 from, bool list)
{
	__u32 key = SCRATCH_EXIT;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &key);
	struct list l = { .from = from };

	if (!s || !from)
		return 0;
	if (!list) {
		add_text(s, TEXT_MORE, (void *)from, true);
		return 0;
	}
	l.start = text_end(&s->ev.head);
	bpf_loop(ARGV_MAX + 1, list_step, &l, 0);
	s->ev.head.text_len[TEXT_MORE] = l.len & (TEXT_MAX - 1);
	s->ev.head.flags |= l.flags << (4 * TEXT_MORE);
	return 0;
}

static __always_inline __u64 mix(__u64 h, __u64 word)
{
	h = (h ^ word) * (seed[1] | 1);
	return h ^ (h >> 29);
}

/*
 * What makes two denials one to a reader. The seed is secret: whoever could make two keys meet could hide the first
 * denial of one behind a flood of the other. 0 is no key: a text too long to be read here, never shed.
 */
static __always_inline __u64 denial_key(struct scratch *s, __u8 keyed)
{
	struct event *ev = &s->ev;
	__u32 len = text_end(&ev->head);
	__u64 h = seed[0], *word;

	if (len > KEY_WORDS * 8 - 8)
		return 0;
	/* The last word is padded, so that what an earlier record left there counts for nothing. */
	__builtin_memset(&s->text[len & (KEY_WORDS * 8 - 1)], 0, 8);
	word = (__u64 *)s->text;
	for (int i = 0; i < KEY_WORDS; i++) {
		if (i * 8 >= len)
			break;
		h = mix(h, word[i]);
	}
	h = mix(h, (__u64)(__u32)ev->nr << 32 | (__u32)ev->ret);
	h = mix(h, ((__u64 *)ev->head.who.comm)[0]);
	h = mix(h, ((__u64 *)ev->head.who.comm)[1]);
	h = mix(h, ev->head.flags);
	h = mix(h, (__u64)ev->head.text_len[TEXT_EXE] << 32 | ev->head.text_len[TEXT_ASKED]);
	h = mix(h, (__u64)ev->head.text_len[TEXT_BASE] << 32 | ev->head.text_len[TEXT_MORE]);
	h = mix(h, (__u64)ev->sock_family << 32 | (__u64)ev->sock_type << 16 | ev->sock_protocol);
	if (!ev->head.text_len[TEXT_ASKED])
		keyed |= 1 << 0 | 1 << 1;
	for (int i = 0; i < 6; i++) /* without a branch, of which the verifier would walk both sides each time */
		h = mix(h, ev->args[i] & -(__u64)(keyed >> i & 1));
	return h ?: 1;
}

/* Whether this denial is one too many of its key. When it is not, it takes over the count of those that were. */
static __always_inline bool shed(struct scratch *s, __u64 key, __u64 waiting)
{
	struct event *ev = &s->ev;
	struct repeat fresh = {}, *r;

	if (!key)
		return false;
	r = bpf_map_lookup_elem(&repeats, &key);
	if (!r) {
		fresh.window = ev->head.time_ns;
		fresh.seen = 1;
		bpf_map_update_elem(&repeats, &key, &fresh, BPF_ANY);
		return false;
	}
	if (ev->head.time_ns - r->window > SHED_WINDOW_NS) {
		r->window = ev->head.time_ns;
		r->seen = 0;
	}
	if (__sync_fetch_and_add(&r->seen, 1) >= SHED_AFTER && waiting > DENIALS_MARK) {
		__sync_fetch_and_add(&r->shed, 1);
		return true;
	}
	ev->repeats = __sync_lock_test_and_set(&r->shed, 0);
	return false;
}

static __always_inline __u64 waiting(enum class class)
{
	switch (class) {
	case CLASS_EXEC: return bpf_ringbuf_query(&denial_exec_ring, BPF_RB_AVAIL_DATA);
	case CLASS_NET: return bpf_ringbuf_query(&denial_net_ring, BPF_RB_AVAIL_DATA);
	case CLASS_FILE: return bpf_ringbuf_query(&denial_file_ring, BPF_RB_AVAIL_DATA);
	default: return bpf_ringbuf_query(&denial_process_ring, BPF_RB_AVAIL_DATA);
	}
}

static __always_inline long output(enum class class, struct scratch *s)
{
	__u64 size = event_size(s);

	switch (class) {
	case CLASS_EXEC: return bpf_ringbuf_output(&denial_exec_ring, &s->ev, size, 0);
	case CLASS_NET: return bpf_ringbuf_output(&denial_net_ring, &s->ev, size, 0);
	case CLASS_FILE: return bpf_ringbuf_output(&denial_file_ring, &s->ev, size, 0);
	default: return bpf_ringbuf_output(&denial_process_ring, &s->ev, size, 0);
	}
}

static __always_inline void emit_denial(struct scratch *s, __u64 key, enum class class)
{
	struct counts *n = &denials[class & (CLASSES - 1)];

	s->ev.class = class;
	__sync_fetch_and_add(&n->produced, 1);
	if (shed(s, key, waiting(class)))
		__sync_fetch_and_add(&n->shed, 1);
	else if (output(class, s))
		__sync_fetch_and_add(&n->lost, 1);
}

/* What was tried goes with what runs: nothing of it may be missing either. */
static __always_inline void emit_tried(struct scratch *s, __u64 key)
{
	__u8 one = 1;

	if (key) /* how a file was to be opened, and which signal, is in these */
		key = mix(mix(key, s->ev.args[1]), s->ev.args[2]);
	if (key && bpf_map_update_elem(&tried, &key, &one, BPF_NOEXIST))
		return;
	emit_exec(&s->ev, event_size(s));
}

/* An executable mapping that succeeded, of a file. Code that is made in memory is not of interest here. */
static __always_inline int mapped(struct pt_regs *regs, long ret, __u32 nr, __u32 slot)
{
	__u32 key = SCRATCH_EXIT;
	struct task_struct *task = bpf_get_current_task_btf();
	const volatile struct call *call;
	struct scratch *s;
	long err;

	if (nr >= MAX_CALLS)
		return 0;
	call = &calls[nr];
	s = begin_event(key, KIND_MAP, slot);
	if (!s)
		return 0;
	save_args(&s->ev, regs);
	s->ev.nr = nr;
	if (call->fd >= 0) /* mmap: its address is what it returned */
		s->ev.args[0] = ret;
	add_exe(key);
	err = bpf_find_vma(task, s->ev.args[0], add_mapping, &key, 0);
	if (err == -16 /* EBUSY: another thread maps something */ ) {
		struct file *file = call->fd >= 0 ? file_of(arg(&s->ev, call->fd)) : 0;

		s->ev.head.flags |= FLAG_BY_FD;
		if (file) {
			describe(&s->ev.file, BPF_CORE_READ(file, f_inode));
			s->ev.head.flags |= FLAG_FILE;
			add_file(key, TEXT_BASE, file);
		} else if (call->fd < 0) {
			s->ev.head.flags |= FLAG_UNREADABLE << (4 * TEXT_BASE);
		}
	}
	if (s->ev.head.flags & (FLAG_FILE | FLAG_UNREADABLE << (4 * TEXT_BASE)))
		emit_exec(&s->ev, event_size(s));
	return 0;
}

static __always_inline int exited(__u64 *ctx, bool again)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	long ret = (long)ctx[1];
	const volatile struct call *call;
	struct scratch *s;
	__u64 wide, key;
	__u32 nr, wanted;
	bool more;
	int slot;

	switch (ret) {
	case -EPERM:
	case -EACCES:
		wanted = CALL_DENIED | CALL_TRIED;
		break;
	case -ENOENT:
	case -ECONNREFUSED:
		if (!want_tried)
			return 0;
		wanted = CALL_TRIED;
		break;
	case -ENOSYS:
		wanted = CALL_NOSYS;
		break;
	case -ENETUNREACH:
	case -EHOSTUNREACH:
		wanted = CALL_UNREACH;
		break;
	case -EROFS:
		wanted = CALL_ROFS | CALL_TRIED;
		break;
	case -EBUSY:
		wanted = CALL_BUSY;
		break;
	default:
		if (!(want_maps | want_tried) || (ret < 0 && ret >= -MAX_ERRNO))
			return 0;
		wanted = CALL_MAPS | CALL_SENT;
	}
	wide = call_number(regs);
	nr = wide;
	if (nr >= MAX_CALLS)
		return 0;
	call = &calls[nr];
	wanted &= call->flags;
	if (call->flags & CALL_SETID && !makes_setid(regs, call->mode))
		wanted &= ~CALL_DENIED;
	if (!wanted || (call->flags & CALL_PROT && !(third_arg(regs) & PROT_EXEC)))
		return 0;
	slot = current_slot();
	if (slot < 0 || looked_at(again))
		return 0;
	if (again)
		__sync_fetch_and_add(&caught, 1);
	if (wanted & CALL_MAPS)
		return mapped(regs, ret, nr, slot);
	if (foreign_abi())
		return 0;
	s = begin_event(SCRATCH_EXIT, KIND_DENIAL, slot);
	if (!s)
		return 0;
	if (wide != nr)
		s->ev.head.flags |= FLAG_WIDE_NR;
	/* Kept in the record, of which the verifier knows nothing, so that it walks what follows once and not for each. */
	if (!(wanted & (CALL_DENIED | CALL_NOSYS | CALL_UNREACH | CALL_ROFS | CALL_BUSY)))
		s->ev.head.kind = KIND_TRIED;
	save_args(&s->ev, regs);
	s->ev.nr = nr;
	s->ev.ret = ret;
	if (take_verdict(nr, ret, s->ev.args))
		s->ev.head.flags |= FLAG_LSM;
	add_exe(SCRATCH_EXIT);
	add_target(s, SCRATCH_EXIT, call);
	more = call->more >= 0 && s->ev.head.kind == KIND_DENIAL;
	/* Another old name is another denial; other arguments of a refused exec are not. */
	if (more && !(call->flags & CALL_ARGV))
		add_more(arg(&s->ev, call->more), false);
	key = denial_key(s, call->keyed);
	if (s->ev.head.kind == KIND_TRIED) {
		emit_tried(s, key);
		return 0;
	}
	if (more && call->flags & CALL_ARGV)
		add_more(arg(&s->ev, call->more), true);
	emit_denial(s, key, call->class);
	return 0;
}

TRACEPOINT(sys_exit, sys_exit)
{
	return exited(ctx, false);
}

TRACEPOINT(sys_exit, sys_exit_again)
{
	return preemptible ? exited(ctx, true) : 0;
}

/* A filter that kills leaves no errno: sys_exit would show the call's own number. The signal is sent by the task to
 * itself. */
TRACEPOINT(signal_generate, signal_generate)
{
	struct kernel_siginfo *info = (struct kernel_siginfo *)ctx[1];
	struct scratch *s;
	int slot;

	if ((int)ctx[0] != SIGSYS || BPF_CORE_READ(info, si_code) != SYS_SECCOMP)
		return 0;
	slot = current_slot();
	if (slot < 0)
		return 0;
	s = begin_event(SCRATCH_SIGNAL, KIND_KILLED, slot);
	if (!s)
		return 0;
	s->ev.nr = BPF_CORE_READ(info, _sifields._sigsys._syscall);
	s->ev.arch = BPF_CORE_READ(info, _sifields._sigsys._arch);
	add_exe(SCRATCH_SIGNAL);
	emit_denial(s, denial_key(s, 0), CLASS_PROCESS);
	return 0;
}
