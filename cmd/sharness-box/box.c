// sharness-box makes the sandboxes of commands: one process a session, which stands in a mount namespace that holds
// what the views of all commands have in common, and forks off a sandbox when the supervisor asks for one. It never
// executes another program and reads nothing that comes from a domain; docs/decisions/0017 says why it is C.
//
// A sandbox is two processes. Pid 1 makes what is the sandbox's own, gives up everything, forks the target and stays as
// reaper. The target waits, with nothing left to give up, for the one message that hands it request and streams. What
// of the view may change until that moment is attached by this process from outside, just before.
#include "errand.h"
#include "init.h"

enum { CONTROL = 4 };

// make forks off one sandbox. It is a child of the supervisor's, who reaps it and by whose death it dies.
static long make(const struct make *m, int *fds, unsigned n, int *pidfd)
{
	if (n < 4 + m->tasks + !!(m->flags & MAKE_GROUP) + !!(m->flags & MAKE_PROBE))
		return at("order", "", -EPROTO);
	struct clone_args c = {.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PARENT | CLONE_PIDFD,
			       .pidfd = (uint64_t)pidfd};
	if (m->flags & MAKE_GROUP) {
		c.flags |= CLONE_INTO_CGROUP;
		c.cgroup = (uint64_t)fds[4 + m->tasks];
	}
	long pid = SYS(clone3, &c, sizeof c, 0, 0, 0);
	if (pid == 0) {
		long err = sandbox(m, fds, n);
		die(fds[0], err);
	}
	return at("fork", "", pid);
}

// begin attaches what is attached last, in the sandbox's namespace, and passes the order on. fds are the sandbox, its
// go socket and the list of steps, then what the target gets, then mounts.
static long begin(const struct make *m, const int *fds, unsigned n)
{
	struct statx st;
	long root = -1, err = 0;
	if (n < 4 || n < 3 + m->uid)
		return at("order", "", -EPROTO);
	TRY("steps", "", SYS6(statx, fds[2], "", AT_EMPTY_PATH, 0x200, &st, 0));
	long list = SYS6(mmap, 0, st.size, PROT_READ, MAP_PRIVATE, fds[2], 0);
	TRY("steps", "", list < 0 && list > -4096 ? list : 0);
	TRY("enter the sandbox", "", SYS(setns, fds[0], CLONE_NEWNS, 0, 0, 0));
	for (const struct op *o = (const struct op *)list; o->code && err >= 0; o = after(o))
		err = step_view(o, 0, fds + 3 + m->uid, &root);
	if (root >= 0)
		SYS(close, root, 0, 0, 0, 0);
	if (SYS(setns, plan->home, CLONE_NEWNS, 0, 0, 0) < 0)
		SYS(exit_group, 1, 0, 0, 0, 0); // the next sandbox would be a copy of this one
	if (err >= 0)
		err = at("order", "", tell(fds[1], (struct message){MSG_GO, m->uid, 0}, "", "", fds + 3, m->uid));
	// The texts of an error may lie in the list: it stays mapped until that is told.
	if (err < 0)
		tell(CONTROL, (struct message){MSG_ERROR, 0, (uint32_t)-err}, step, name, 0, 0);
	else
		tell(CONTROL, (struct message){MSG_BEGUN, 0, 0}, "", "", 0, 0);
	SYS(munmap, list, st.size, 0, 0, 0);
	return 1;
}

__attribute__((noreturn, used)) void start(long *stack)
{
	struct statx st = {0};
	if (stack[0] > 1)
		SYS(exit_group, -errand((int)stack[0], (const char **)stack + 1), 0, 0, 0, 0);
	SYS6(statx, 3, "", AT_EMPTY_PATH, 0x200, &st, 0);
	// Near the program, whose page tables have room for it: every sandbox has a copy of them, and two pages more elsewhere.
	plan = (const struct plan *)SYS6(mmap, ((long)&plan | 0xfffff) + 1, st.size, PROT_READ, MAP_PRIVATE, 3, 0);
	if ((long)plan < 0 && (long)plan > -4096)
		SYS(exit_group, 125, 0, 0, 0, 0);
	SYS(close, 3, 0, 0, 0, 0);
	SYS(prctl, PR_SET_NAME, "sharness-box", 0, 0, 0);
	long bound = bounded();
	if (bound < 0)
		die(CONTROL, bound);
	for (;;) {
		struct make m;
		int fds[MAX_FDS], pidfd = -1;
		unsigned n;
		long got = hear(CONTROL, &m, sizeof m, fds, &n);
		if (got != sizeof m)
			SYS(exit_group, got != 0, 0, 0, 0, 0);
		long r = m.op == ORDER_MAKE ? make(&m, fds, n, &pidfd) : begin(&m, fds, n);
		if (r < 0)
			tell(CONTROL, (struct message){MSG_ERROR, 0, (uint32_t)-r}, step, name, 0, 0);
		else if (m.op == ORDER_MAKE)
			tell(CONTROL, (struct message){MSG_MADE, (uint32_t)r, 0}, "", "", &pidfd, 1);
		if (pidfd >= 0)
			SYS(close, pidfd, 0, 0, 0, 0);
		for (unsigned i = 0; i < n; i++)
			SYS(close, fds[i], 0, 0, 0, 0);
	}
}
