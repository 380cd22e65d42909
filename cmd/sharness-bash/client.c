// sharness-bash: the only way to run a command from inside an orchestrator's domain. It hands its descriptors 0-2,
// its arguments, environment and working directory to the bash-server, forwards signals, and ends the way the command
// ended. docs/protocol.md is the manual of what it says.
//
// Freestanding: starting a C library, let alone a Go runtime, would cost more than the whole round trip. It allocates
// nothing: what the kernel put on the stack is sent from where it lies.
//
// Build: cc -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables
//           -Os -DVERSION='"1.0"' -Wl,--build-id=none -Wl,-z,noexecstack -o sharness-bash client.c
#include "sys.h"

#ifndef VERSION
#define VERSION "development"
#endif

enum { // bashserver/wire/wire.go is the original of these
	HELLO = 1, EXECFN = 2, CWD = 3, ARG = 4, ENVVAR = 5, START = 6, SIGNAL = 7, EXE = 8, EXIT = 128, ERROR = 129,
	MAX_PATH = 4095, MAX_ERROR = 4096,
	BATCH = 64, // frames a sendmsg; UIO_MAXIOV would allow 512
};

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGTSTP, SIGWINCH};

static void leave(int status)
{
	for (;;)
		SYS(exit_group, status, 0, 0, 0, 0);
}

// say writes one line to stderr in one piece.
static void say(const char *a, const char *b, const char *c)
{
	const char *part[] = {"sharness-bash: ", a, b, c, "\n"};
	struct iovec v[5];
	for (int i = 0; i < 5; i++)
		v[i] = (struct iovec){part[i], length(part[i])};
	SYS(writev, 2, v, 5, 0, 0);
}

// unreachable ends a client that has no server. The status is 2 and nothing else: an agent that runs this client as a
// hook takes every other failure as leave to go on.
static void unreachable(const char *what, const char *path, long err)
{
	char number[] = ": errno 000";
	const char *why = number;
	if (err == 0)
		why = "";
	else if (err == -ENOENT)
		why = ": no such file or directory; no session has its socket there: set SHARNESS_SOCKET to that of one that runs";
	else if (err == -EACCES)
		why = ": permission denied; it serves the agent of its session, or root with sharness serve";
	else if (err == -ECONNREFUSED)
		why = ": connection refused; its session has ended: set SHARNESS_SOCKET to the socket of one that runs";
	else
		for (long n = -err, i = sizeof number - 2; n > 0 && i > 7; n /= 10, i--)
			number[i] = (char)('0' + n % 10);
	say(what, path, why);
	leave(2);
}

// follow_parent returns a descriptor that becomes readable when the parent process is gone, so that a client never
// outlives a killed agent. PDEATHSIG is only the fallback: it fires when the *thread* that forked ends, and runtimes
// fork from worker threads that come and go.
static long follow_parent(void)
{
	long parent = SYS(getppid, 0, 0, 0, 0, 0);
	if (parent == 0) // in another pid namespace: nothing to follow but the signal
		return SYS(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), -1;
	long fd = SYS(pidfd_open, parent, 0, 0, 0, 0);
	if (fd < 0)
		SYS(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (SYS(getppid, 0, 0, 0, 0, 0) != parent) // it died before we looked, and the pid may be another's by now
		leave(2);
	return fd;
}

// fill_stdio makes 0-2 open: a number that is free would be taken by our own socket and then be sent as stdio.
static void fill_stdio(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (SYS(fcntl, fd, F_GETFD, 0, 0, 0) < 0 &&
		    SYS(openat, AT_FDCWD, "/dev/null", O_RDWR, 0, 0) != fd)
			leave(2); // nowhere to say why
}

static long dial(const char *path)
{
	struct sockaddr_un to = {.family = AF_UNIX};
	size_t n = length(path);
	if (n >= sizeof to.path)
		unreachable("path of the bash-server is too long: ", path, 0);
	memcpy(to.path, path, n + 1);
	long sock = SYS(socket, AF_UNIX, SOCK_STREAM, 0, 0, 0);
	if (sock < 0)
		unreachable("cannot make a socket for the bash-server at ", path, sock);
	long err;
	do
		err = SYS(connect, sock, &to, sizeof to, 0, 0);
	while (err == -EINTR);
	if (err < 0)
		unreachable("cannot reach the bash-server at ", path, err);
	return sock;
}

// A request on its way: frames are gathered and sent from where their payload lies.
static struct {
	long sock, err;
	uint64_t blocked; // signals while it waits for a server that does not read, as we were started
	int sent_fds;
	unsigned frames;
	struct iovec v[2 * BATCH];
	unsigned char head[BATCH][8];
} out;

static void flush(void)
{
	struct rights r = {.len = offsetof(struct rights, fds) + sizeof r.fds, .level = SOL_SOCKET, .type = SCM_RIGHTS,
			   .fds = {0, 1, 2}};
	struct iovec *v = out.v, *end = v + 2 * out.frames;
	out.frames = 0;
	while (out.err == 0) {
		while (v < end && v->len == 0)
			v++;
		if (v == end)
			return;
		struct msghdr m = {.iov = v, .iovlen = (size_t)(end - v)};
		if (!out.sent_fds) {
			m.control = &r;
			m.controllen = sizeof r;
		}
		long n = SYS(sendmsg, out.sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN) {
			struct pollfd room = {(int)out.sock, POLLOUT, 0};
			SYS(ppoll, &room, 1, 0, &out.blocked, 8);
			continue;
		}
		if (n < 0) {
			out.err = n; // not fatal yet: the server may have said why before it hung up
			return;
		}
		out.sent_fds = 1;
		while (n > 0) {
			size_t step = (size_t)n < v->len ? (size_t)n : v->len;
			v->base = (const char *)v->base + step;
			v->len -= step;
			n -= (long)step;
			if (v->len == 0)
				v++;
		}
	}
}

static void header(unsigned char h[8], int type, size_t len)
{
	h[0] = (unsigned char)type;
	h[1] = h[2] = h[3] = 0;
	for (int i = 0; i < 4; i++)
		h[4 + i] = (unsigned char)(len >> (8 * i));
}

static void put(int type, const void *payload, size_t len)
{
	if (out.frames == BATCH)
		flush();
	unsigned i = out.frames++;
	header(out.head[i], type, len);
	out.v[2 * i] = (struct iovec){out.head[i], 8};
	out.v[2 * i + 1] = (struct iovec){payload, len};
}

static void send_request(char **argv, char **env, const char *execfn)
{
	static char cwd[MAX_PATH + 1], exe[MAX_PATH + 1];
	put(HELLO, "\1", 2); // version 1, u16
	put(EXECFN, execfn, length(execfn));
	long n = SYS(readlinkat, AT_FDCWD, "/proc/self/exe", exe, MAX_PATH, 0);
	if (n > 0 && exe[0] == '/')
		put(EXE, exe, (size_t)n);
	n = SYS(getcwd, cwd, sizeof cwd, 0, 0, 0);
	if (n <= 0 || cwd[0] != '/') // deleted or outside our root: let the server refuse the root
		memcpy(cwd, "/", 2);
	put(CWD, cwd, length(cwd));
	for (; *argv; argv++)
		put(ARG, *argv, length(*argv));
	for (; *env; env++)
		if (**env)
			put(ENVVAR, *env, length(*env));
	put(START, "", 0);
	flush();
}

// hold_signals keeps what a person or an agent sends from here on, and returns which signals that are: the command may run
// before we come to listen, and is to be told then. Signals that were ignored or blocked when we were started stay so: that is
// how nohup and job control speak to a program.
static uint64_t hold_signals(void)
{
	uint64_t mask = 0;
	SYS(rt_sigprocmask, SIG_BLOCK, &mask, &out.blocked, 8, 0);
	for (unsigned i = 0; i < sizeof forwarded / sizeof *forwarded; i++) {
		struct sigaction old = {0};
		uint64_t bit = 1ULL << (forwarded[i] - 1);
		SYS(rt_sigaction, forwarded[i], 0, &old, 8, 0);
		if (old.handler != SIG_IGN && !(out.blocked & bit))
			mask |= bit;
	}
	SYS(rt_sigprocmask, SIG_BLOCK, &mask, 0, 8, 0);
	return mask;
}

// by_default lets signal n do to this process what it does by default.
static void by_default(uint32_t n)
{
	struct sigaction dfl = {0};
	uint64_t bit = 1ULL << (n - 1);
	SYS(rt_sigaction, n, &dfl, 0, 8, 0);
	SYS(kill, SYS(getpid, 0, 0, 0, 0, 0), n, 0, 0, 0);
	SYS(rt_sigprocmask, SIG_UNBLOCK, &bit, 0, 8, 0);
}

static void forward(long sigfd, long sock)
{
	struct siginfo info;
	unsigned char f[12];
	if (SYS(read, sigfd, &info, sizeof info, 0, 0) != sizeof info)
		return;
	header(f, SIGNAL, 4);
	for (int i = 0; i < 4; i++)
		f[8 + i] = (unsigned char)(info.signo >> (8 * i));
	// Never wait here: a server that does not read must not make us deaf. A frame this small goes whole or not at all.
	SYS(sendto, sock, f, sizeof f, MSG_DONTWAIT | MSG_NOSIGNAL, 0);
	if (info.signo == SIGTSTP) { // stop as a shell's job stops; the kernel spares an orphaned group
		uint64_t bit = 1ULL << (SIGTSTP - 1);
		by_default(SIGTSTP);
		SYS(rt_sigprocmask, SIG_BLOCK, &bit, 0, 8, 0);
	}
}

static int get(long sock, void *to, size_t n)
{
	for (size_t have = 0; have < n;) {
		long r = SYS(read, sock, (char *)to + have, n - have, 0, 0);
		if (r > 0)
			have += (size_t)r;
		else if (r != -EINTR)
			return 0;
	}
	return 1;
}

static uint32_t u32(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// finish reads the one answer there is and ends accordingly.
static void finish(long sock, const char *path)
{
	static unsigned char head[8], body[4 + MAX_ERROR + 1];
	if (!get(sock, head, 8))
		unreachable("the bash-server went away, and may be back for the next command: ", path, 0);
	uint32_t len = u32(head + 4);
	if (len > sizeof body - 1 || len < 4 || !get(sock, body, len))
		unreachable("the bash-server broke off: ", path, 0);
	uint32_t first = u32(body);
	if (head[0] == ERROR) {
		say((const char *)body + 4, "", "");
		leave((int)(first & 255));
	}
	if (head[0] != EXIT || len != 8)
		unreachable("the bash-server speaks another protocol: ", path, 0);
	uint32_t value = u32(body + 4);
	if (first == 0)
		leave((int)(value & 255));
	if (value >= 1 && value <= 64) {
		SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0); // our core would be of no use, and a piped handler runs outside
		by_default(value);
	}
	leave((int)(128 + (value & 127)));
}

__attribute__((noreturn, used)) void start(long *stack)
{
	char **argv = (char **)(stack + 1), **env = argv + stack[0] + 1, **p = env;
	const char *path = "/run/sharness/bash.sock", *execfn = stack[0] > 0 ? argv[0] : "", *base = execfn;
	fill_stdio();
	for (const char *s = base; *s; s++)
		if (*s == '/')
			base = s + 1;
	if (stack[0] > 1 && same(base, "sharness-bash") && (same(argv[1], "--help") || same(argv[1], "--version"))) {
		static const char help[] = "sharness-bash " VERSION "\n"
			"usage: sharness-bash [--json] [--background | --tty] -c CMD | -lc CMD | -c -l CMD\n"
			"       sharness-bash [--json] --jobs | --job-log ID | --kill ID\n"
			"Runs a command in a sandbox of the bash-server (SHARNESS_SOCKET or /run/sharness/bash.sock).\n"
			"Options are bash's; --json prints one object with the output and how it ended.\n"
			"--background returns at once and prints a number: the command runs on as a job, which\n"
			"--jobs lists, --job-log shows what it has printed, and --kill ends. --tty runs it on a\n"
			"terminal of its own, which it has without asking when 0, 1 and 2 are a terminal.\n"
			"These are for the agent: in a command the name sharness-bash is bash's.\n"
			"Status: the command's; 2 when the server cannot be reached or does not run it, 126 for\n"
			"a program that is no route, 1 for a job that there is none of.\n";
		struct iovec v = {help, same(argv[1], "--help") ? sizeof help - 1 : sizeof "sharness-bash " VERSION};
		SYS(writev, 1, &v, 1, 0, 0);
		leave(0);
	}
	for (; *p; p++)
		for (const char *name = "SHARNESS_SOCKET=", *s = *p; *s == *name; s++)
			if (*++name == 0) {
				if (s[1]) /* empty is as good as unset */
					path = s + 1;
				break;
			}
	for (long *aux = (long *)(p + 1); aux[0] != AT_NULL; aux += 2)
		if (aux[0] == AT_EXECFN)
			execfn = (const char *)aux[1];

	long parent = follow_parent();
	out.sock = dial(path);
	uint64_t held = hold_signals();
	send_request(argv, env, execfn);
	if (out.err < 0) {
		SYS(rt_sigprocmask, SIG_SETMASK, &out.blocked, 0, 8, 0);
		finish(out.sock, path);
	}
	long sigfd = SYS(signalfd4, -1, &held, 8, 0, 0);
	struct pollfd wait[] = {{(int)out.sock, POLLIN, 0}, {(int)sigfd, POLLIN, 0}, {(int)parent, POLLIN, 0}};
	for (;;) {
		if (SYS(ppoll, wait, 3, 0, 0, 8) < 0)
			continue;
		if (wait[1].revents)
			forward(sigfd, out.sock);
		if (wait[2].revents)
			SYS(kill, SYS(getpid, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0);
		if (wait[0].revents)
			finish(out.sock, path);
	}
}
