// The target: the process that waits for a request and executes it.
#ifndef TARGET_H
#define TARGET_H

#include "drop.h"

// terminal makes a pty in the sandbox's own devpts and sends its master home (launcher/stage, openTerminal, says why so).
static long terminal(long status, uint32_t id)
{
	char path[24] = "/dev/pts/", digits[12];
	struct termios t;
	int n = 0, unlock = 0;
	long master = SYS(openat, AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0, 0);
	TRY("terminal: open ptmx", "", master);
	TRY("terminal: unlock pty", "", SYS(ioctl, master, TIOCSPTLCK, &unlock, 0, 0));
	TRY("terminal: pty number", "", SYS(ioctl, master, TIOCGPTN, &n, 0, 0));
	char *d = decimal((uint32_t)n, digits + sizeof digits);
	memcpy(path + 9, d, length(d) + 1);
	long slave = SYS(openat, AT_FDCWD, path, O_RDWR | O_NOCTTY | O_CLOEXEC, 0, 0);
	TRY("terminal: open pty", "", slave);
	// Nobody outside could continue what the suspend character stops.
	TRY("terminal: get modes", "", SYS(ioctl, slave, TCGETS, &t, 0, 0));
	t.cc[VSUSP] = 0;
	TRY("terminal: set modes", "", SYS(ioctl, slave, TCSETS, &t, 0, 0));
	TRY("terminal: owner of pty", "", SYS(fchown, slave, id, id, 0, 0));
	TRY("terminal: take as controlling terminal", "", SYS(ioctl, slave, TIOCSCTTY, 0, 0, 0));
	int pass = (int)master;
	TRY("terminal: send", "", tell(status, (struct message){MSG_TERMINAL, 0, 0}, "", "", &pass, 1));
	struct message m = {0, 0, 0};
	TRY("terminal: receive", "", SYS(read, status, &m, sizeof m, 0, 0));
	TRY("terminal: order instead of dressed", "", m.type == MSG_DRESSED ? 0 : -EPROTO);
	return slave;
}

// run waits for the order and executes what it says. It returns on failure alone.
static long run(long go, long layer, long slave)
{
	struct message m;
	struct statx st;
	struct request r = {0};
	int fds[MAX_FDS];
	unsigned n;
	int mine[] = {(int)go, (int)slave};
	TRY("pdeathsig", "", SYS(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	TRY("setpgid", "", SYS(setpgid, 0, 0, 0, 0, 0));
	PASS(restrict_self(layer, ""));
	PASS(keep(mine, 2));
	if (slave >= 0)
		for (int fd = 0; fd < 3; fd++)
			TRY("stdio", "", SYS(dup3, slave, fd, 0, 0, 0));
	long got = hear(go, &m, sizeof m, fds, &n);
	if (got == 0)
		SYS(exit_group, 0, 0, 0, 0, 0); // nobody wants the sandbox any more
	TRY("order", "", got != sizeof m || m.type != MSG_GO || n != m.a || n < 1 ? -EPROTO : 0);
	for (int fd = 0; fd < 3 && n >= 4; fd++)
		TRY("stdio", "", SYS(dup3, fds[1 + fd], fd, 0, 0, 0));
	TRY("close_range", "", SYS(close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC, 0, 0));
	// Only now a byte that the domain's other side wrote is read.
	TRY("request", "", SYS6(statx, fds[0], "", AT_EMPTY_PATH, 0x200, &st, 0));
	if (st.size == 0 || st.size > MAX_COMMAND)
		return at("request", "", -EPROTO);
	long b = SYS6(mmap, 0, st.size, PROT_READ, MAP_PRIVATE, fds[0], 0);
	TRY("request", "", b < 0 && b > -4096 ? b : 0);
	size_t count = pointers((const unsigned char *)b, st.size);
	if (!count)
		return at("request", "", -EPROTO);
	long table = SYS6(mmap, 0, count * sizeof(char *), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TRY("request", "", table < 0 && table > -4096 ? table : 0);
	if (!decode((const unsigned char *)b, st.size, (const char **)table, &r))
		return at("request", "", -EPROTO);
	// The kernel is asked where this is: links in a path may lead anywhere in the view.
	static char cwd[MAX_PATH + 1];
	TRY("cwd", "", SYS(chdir, r.cwd, 0, 0, 0, 0));
	TRY("cwd", "", SYS(getcwd, cwd, sizeof cwd, 0, 0, 0));
	const char *below = plan->below, *c = cwd;
	while (*below && *below == *c)
		below++, c++;
	if (*below || (*c && *c != '/' && !same(plan->below, "/")))
		return at("cwd", "", -EACCES);
	uint64_t none = 0;
	SYS(rt_sigprocmask, SIG_SETMASK, &none, 0, 8, 0);
	if (n > 4) // a program of the supervisor's own, which is in no view
		return at("exec", "", SYS(execveat, fds[4], "", r.argv, r.env, AT_EMPTY_PATH));
	return at("exec", "", SYS(execve, r.path, r.argv, r.env, 0, 0));
}

#endif
