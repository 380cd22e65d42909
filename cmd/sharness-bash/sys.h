// What the kernel offers, without a C library: entry, system calls, the few structures and numbers that are used.
// Structures are those of the kernel's uapi headers, which are the same on x86_64 and arm64 where nothing is said.
#ifndef SYS_H
#define SYS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
enum {
	NR_read = 0, NR_rt_sigaction = 13, NR_rt_sigprocmask = 14, NR_writev = 20, NR_getpid = 39, NR_socket = 41,
	NR_connect = 42, NR_sendto = 44, NR_sendmsg = 46, NR_kill = 62, NR_fcntl = 72, NR_getcwd = 79, NR_getppid = 110,
	NR_prctl = 157, NR_exit_group = 231, NR_openat = 257, NR_readlinkat = 267, NR_ppoll = 271, NR_signalfd4 = 289,
	NR_pidfd_open = 434,
};

// The kernel enters with argc at the stack pointer, which the ABI wants 16-aligned at a call.
__asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tmov %rsp,%rdi\n\tand $-16,%rsp\n\tcall start\n\thlt\n");

static long sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
enum {
	NR_getcwd = 17, NR_fcntl = 25, NR_openat = 56, NR_read = 63, NR_writev = 66, NR_ppoll = 73, NR_signalfd4 = 74,
	NR_readlinkat = 78, NR_exit_group = 94, NR_kill = 129, NR_rt_sigaction = 134, NR_rt_sigprocmask = 135,
	NR_prctl = 167, NR_getpid = 172, NR_getppid = 173, NR_socket = 198, NR_connect = 203, NR_sendto = 206,
	NR_sendmsg = 211, NR_pidfd_open = 434,
};

__asm__(".globl _start\n_start:\n\tmov x29,#0\n\tmov x30,#0\n\tmov x0,sp\n\tbl start\n\tbrk #0\n");

static long sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
}
#else
#error "sharness-bash is written for x86_64 and arm64"
#endif

#define SYS(nr, a, b, c, d, e) sys6(NR_##nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

enum {
	AF_UNIX = 1, SOCK_STREAM = 1, SOL_SOCKET = 1, SCM_RIGHTS = 1, MSG_DONTWAIT = 0x40, MSG_NOSIGNAL = 0x4000,
	O_RDWR = 2, AT_FDCWD = -100, F_GETFD = 1, POLLIN = 1, POLLOUT = 4, POLLHUP = 16, POLLERR = 8, AT_NULL = 0, AT_EXECFN = 31,
	PR_SET_PDEATHSIG = 1, PR_SET_DUMPABLE = 4, SIG_BLOCK = 0, SIG_UNBLOCK = 1, SIG_SETMASK = 2, SIG_IGN = 1,
	ENOENT = 2, EINTR = 4, EAGAIN = 11, EACCES = 13, ECONNREFUSED = 111,
	SIGHUP = 1, SIGINT = 2, SIGQUIT = 3, SIGKILL = 9, SIGUSR1 = 10, SIGUSR2 = 12, SIGTERM = 15, SIGCONT = 18,
	SIGTSTP = 20, SIGWINCH = 28,
};

struct iovec { const void *base; size_t len; };
struct msghdr { void *name; int namelen; struct iovec *iov; size_t iovlen; void *control; size_t controllen; int flags; };
struct rights { size_t len; int level, type, fds[3]; }; // a cmsghdr and its descriptors; len leaves out the padding
struct sockaddr_un { uint16_t family; char path[108]; };
struct pollfd { int fd; short events, revents; };
struct sigaction { unsigned long handler, flags, restorer; uint64_t mask; };
struct siginfo { uint32_t signo; char rest[124]; };

// gcc may call these for copies and clears of its own even with -ffreestanding.
void *memcpy(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
	return to;
}

void *memset(void *to, int c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((volatile char *)to)[i] = (char)c;
	return to;
}

static size_t length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

#endif
