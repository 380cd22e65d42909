// What the program does beside making sandboxes: short errands that need a process with one thread, which a Go program is not.
#ifndef ERRAND_H
#define ERRAND_H

#include "view.h"

// hold stands in a new user namespace until standard input ends; a byte on standard output says that it is there.
//
// Whoever makes a namespace owns it, and what is used up inside counts for the owner too, such as inotify instances
// (user_namespaces(7), namespaces(7) on /proc/sys/user): of root that would be the host's. So an id is taken first that
// nobody else has, and with capabilities, since a host may let nobody else make one. What the maker may have of some limits
// without asking is the most that anybody inside can have; it asks for all that the host grants.
static long hold(uint32_t id)
{
	char c = 0;
	for (const int *r = (const int[]){RLIMIT_NPROC, RLIMIT_MEMLOCK, RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, -1}; *r >= 0; r++) {
		uint64_t limit[2];
		TRY("", "", SYS(prlimit64, 0, *r, 0, limit, 0));
		limit[0] = limit[1];
		TRY("", "", SYS(prlimit64, 0, *r, limit, 0, 0));
	}
	TRY("", "", SYS(prctl, PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0));
	TRY("", "", SYS(setresgid, id, id, id, 0, 0));
	TRY("", "", SYS(setresuid, id, id, id, 0, 0));
	TRY("", "", SYS(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)); // taking an id cleared it
	TRY("", "", SYS(unshare, CLONE_NEWUSER, 0, 0, 0, 0));
	TRY("", "", SYS(write, 1, &c, 1, 0, 0));
	return SYS(read, 0, &c, 1, 0, 0);
}

static uint32_t number(const char *s)
{
	uint32_t n = 0;
	while (*s >= '0' && *s <= '9')
		n = n * 10 + (uint32_t)(*s++ - '0');
	return n;
}

enum { REPORT = 4, USERNS = 6, STAGE = 7 }; // what launcher/stage, startEnter, hands over

// enter takes a process of the stage into its user namespace, and goes on as the stage.
static long enter(const char **env)
{
	const char *argv[] = {"sharness-init", "enter", 0};
	TRY("enter user namespace", "", SYS(setns, USERNS, CLONE_NEWUSER, 0, 0, 0));
	TRY("close_range", "", SYS(close_range, STAGE + 1, ~0U, 0, 0, 0));
	SYS(close, USERNS, 0, 0, 0, 0);
	return at("exec of the stage", "", SYS(execveat, STAGE, "", argv, env, AT_EMPTY_PATH));
}

// errand runs one of them and returns the errno that it failed with.
static long errand(int argc, const char **argv)
{
	if (argc == 3 && same(argv[1], "hold"))
		return hold(number(argv[2]));
	if (argc != 2 || !same(argv[1], "enter"))
		return -EINVAL;
	long err = enter(argv + argc + 1);
	char digits[12], *d = decimal((uint32_t)-err, digits + sizeof digits);
	struct iovec v[] = {{step, length(step)}, {": errno ", 8}, {d, length(d)}};
	SYS(writev, REPORT, v, 3, 0, 0);
	return err;
}

#endif
