// Errors as steps with names, and the messages of seqpacket sockets.
#ifndef SAY_H
#define SAY_H

#include "kernel.h"
#include "request.h"
#include "plan.h"

enum { MAX_FDS = 253 }; // SCM_MAX_FD

static const struct plan *plan;

// What was being done, for the one line that travels home when it fails.
static const char *step, *name;

static long at(const char *s, const char *n, long result)
{
	step = s, name = n;
	return result;
}

// TRY leaves the function with the error of a call.
#define TRY(s, n, call) do { long r_ = at(s, n, call); if (r_ < 0) return r_; } while (0)

// PASS leaves it with the error of a function that has named its own step.
#define PASS(call) do { long r_ = (call); if (r_ < 0) return r_; } while (0)

struct message { uint32_t type, a, b; };

static long tell(long sock, struct message m, const char *text, const char *more, const int *fds, unsigned n)
{
	struct iovec v[] = {{&m, sizeof m}, {text, length(text)}, {more, length(more)}};
	struct { size_t len; int level, type, fds[8]; } r = {offsetof(struct rights, fds) + n * sizeof(int), SOL_SOCKET, SCM_RIGHTS, {0}};
	for (unsigned i = 0; i < n; i++)
		r.fds[i] = fds[i];
	struct msghdr h = {.iov = v, .iovlen = 3, .control = n ? &r : 0, .controllen = n ? (r.len + 7) & ~7UL : 0};
	long err;
	do
		err = SYS(sendmsg, sock, &h, MSG_NOSIGNAL, 0, 0);
	while (err == -EINTR);
	return err;
}

// hear reads one message and its descriptors. 0 is the end of the other side.
static long hear(long sock, void *to, size_t size, int *fds, unsigned *n)
{
	struct { size_t len; int level, type, fds[MAX_FDS]; } r;
	struct iovec v = {to, size};
	struct msghdr h = {.iov = &v, .iovlen = 1, .control = &r, .controllen = sizeof r};
	long got;
	do
		got = SYS(recvmsg, sock, &h, MSG_CMSG_CLOEXEC, 0, 0);
	while (got == -EINTR);
	*n = 0;
	if (got > 0 && h.controllen >= offsetof(struct rights, fds))
		for (*n = 0; *n < (r.len - offsetof(struct rights, fds)) / sizeof(int); ++*n)
			fds[*n] = r.fds[*n];
	return got > 0 && h.flags & (MSG_TRUNC | MSG_CTRUNC) ? -EPROTO : got;
}

// die ends a process of a sandbox that cannot be finished.
static void die(long sock, long err)
{
	tell(sock, (struct message){MSG_ERROR, 0, (uint32_t)-err}, step, name, 0, 0);
	for (;;)
		SYS(exit_group, 125, 0, 0, 0, 0);
}

#endif
