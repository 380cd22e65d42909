// Pid 1 of a sandbox.
#ifndef INIT_H
#define INIT_H

#include "target.h"

// left says whether others run on when the target has ended. Those that are about to end, such as the ones of a <(...),
// get a moment to do so.
static int left(void)
{
	struct pollfd none = {-1, 0, 0};
	int64_t pause[2] = {0, 2000000};
	for (int tries = 10;;) {
		long pid = SYS(wait4, -1, 0, WNOHANG, 0, 0);
		if (pid < 0)
			return 0;
		if (pid == 0 && tries-- == 0)
			return 1;
		if (pid == 0)
			SYS(ppoll, &none, 1, pause, 0, 8);
	}
}

// reap reports what the target does until it has ended, and takes every orphan of the namespace.
static void reap(long status, int target)
{
	for (int ws, pid; (pid = (int)SYS(wait4, -1, &ws, WNOHANG | WUNTRACED, 0, 0)) > 0;) {
		if (pid != target)
			continue;
		if ((ws & 0xff) == 0x7f) {
			tell(status, (struct message){MSG_STOPPED, (uint32_t)ws >> 8 & 0xff, 0}, "", "", 0, 0);
			continue;
		}
		struct message m = {MSG_EXITED, (ws & 0x7f) != 0, ws & 0x7f ? (uint32_t)ws & 0x7f : (uint32_t)ws >> 8 & 0xff};
		// What is left in the namespace ends before that is told: whoever hears it need not wait for more. Without a child there
		// is nobody, since orphans are ours, and a signal to all would look at every process of the host.
		if (left()) {
			tell(status, (struct message){MSG_LEFT, 0, 0}, "", "", 0, 0);
			SYS(kill, -1, SIGKILL, 0, 0, 0);
			while (SYS(wait4, -1, 0, 0, 0, 0) > 0)
				;
		}
		tell(status, m, "", "", 0, 0);
		SYS(exit_group, 0, 0, 0, 0, 0);
	}
}

// stay is the rest of pid 1's life.
static void stay(long status, int target, long slave, long signals)
{
	struct pollfd wait[] = {{(int)status, POLLIN, 0}, {(int)signals, POLLIN, 0}};
	for (;;) {
		struct siginfo info;
		struct message m;
		if (SYS(ppoll, wait, 2, 0, 0, 8) < 0)
			continue;
		if (wait[1].revents) {
			SYS(read, signals, &info, sizeof info, 0, 0);
			reap(status, target);
		}
		if (!wait[0].revents)
			continue;
		// The end of the supervisor is the end of the domain: that is the second cord beside PDEATHSIG.
		if (SYS(read, status, &m, sizeof m, 0, 0) != sizeof m || (m.type != MSG_SIGNAL && m.type != MSG_CONTINUE))
			SYS(exit_group, 125, 0, 0, 0, 0);
		if (m.type == MSG_CONTINUE && slave >= 0) {
			int group = m.a ? target : 1;
			SYS(ioctl, slave, TIOCSPGRP, &group, 0, 0); // one that hangs up meanwhile ends the target anyway
		}
		SYS(kill, -target, m.type == MSG_SIGNAL ? (int)m.a : SIGCONT, 0, 0, 0);
	}
}

// sandbox is the life of pid 1, in the only safe order (launcher/stage says what breaks if a step moves). fds are status,
// go, network and user namespace, then the tasks files of v1 groups, and for the probe its program.
static long sandbox(const struct make *m, const int *fds, unsigned n)
{
	long status = fds[0], go = fds[1], root = -1, slave = -1;
	TRY("pdeathsig", "", SYS(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	TRY("setsid", "", SYS(setsid, 0, 0, 0, 0, 0));
	// Writing 0 moves one thread, itself, and skips the lock that writing a pid waits 7-12 ms for.
	for (unsigned i = 0; i < m->tasks; i++)
		TRY("cgroup: enter", "", SYS(write, fds[4 + i], "0", 1, 0, 0));
	TRY("network namespace", "", SYS(setns, fds[2], CLONE_NEWNET, 0, 0, 0));
	TRY("cgroup namespace", "", SYS(unshare, CLONE_NEWCGROUP, 0, 0, 0, 0));
	TRY("hostname", "", SYS(sethostname, plan->hostname, length(plan->hostname), 0, 0, 0));
	for (const struct op *o = plan->op; o->code; o = after(o)) {
		long r = step_view(o, m->uid, fds, &root);
		if (r < 0)
			return r;
	}
	long null = SYS(openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0, 0);
	TRY("stdio: open ", "/dev/null", null);
	for (int fd = 0; fd < 3; fd++)
		TRY("stdio", "", SYS(dup3, null, fd, 0, 0, 0));
	if (m->flags & MAKE_TERMINAL)
		PASS(slave = terminal(status, m->uid));
	long layer = ruleset();
	if (layer < 0 && plan->attr_size)
		return layer;
	if (m->flags & MAKE_PROBE && layer >= 0 && plan->layer.fs) {
		struct landlock_path p = {5 & plan->layer.fs, fds[n - 1]}; // EXECUTE and READ_FILE
		TRY("landlock: add rule for the self-probe", "", SYS(landlock_add_rule, layer, LANDLOCK_RULE_PATH_BENEATH, &p, 0, 0));
	}
	int user = fds[3], mine[] = {(int)status, (int)go, (int)layer, (int)slave, plan->outer, plan->deny, user};
	PASS(keep(mine, 7));
	PASS(limits(0));
	// Last of what is made: who stands in it has no capability over the namespaces of before, whose limits count no more either.
	TRY("user namespace", "", SYS(setns, user, CLONE_NEWUSER, 0, 0, 0));
	PASS(give_up());
	uint64_t chld = 1ULL << (SIGCHLD - 1);
	TRY("signals", "", SYS(rt_sigprocmask, SIG_SETMASK, &chld, 0, 8, 0));
	long target = SYS(clone, SIGCHLD, 0, 0, 0, 0);
	TRY("fork", "", target);
	if (target == 0)
		die(go, run(go, layer, slave));
	SYS(setpgid, target, target, 0, 0, 0); // it does so too: whoever is first
	if (slave >= 0)
		TRY("terminal: foreground", "", SYS(ioctl, slave, TIOCSPGRP, &target, 0, 0));
	SYS(close, go, 0, 0, 0, 0);
	PASS(restrict_self(plan->deny, "domain of pid 1"));
	long signals = SYS(signalfd4, -1, &chld, 8, O_CLOEXEC, 0);
	TRY("signalfd", "", signals);
	int mine1[] = {(int)status, (int)slave, (int)signals};
	PASS(keep(mine1, 3));
	TRY("status", "", tell(status, (struct message){MSG_READY, 0, 0}, "", "", 0, 0));
	stay(status, (int)target, slave, signals);
	return 0;
}

#endif
