// What sharness-box needs of the kernel beyond what the client does: numbers and structures of the uapi headers.
#ifndef KERNEL_H
#define KERNEL_H

#include "../sharness-bash/sys.h"

#if defined(__x86_64__)
enum {
	NR_write = 1, NR_close = 3, NR_mmap = 9, NR_munmap = 11, NR_ioctl = 16, NR_pread64 = 17, NR_recvmsg = 47, NR_clone = 56, NR_execve = 59,
	NR_wait4 = 61, NR_chdir = 80, NR_fchown = 93, NR_setpgid = 109, NR_setsid = 112, NR_getgroups = 115, NR_setgroups = 116,
	NR_setresuid = 117, NR_getresuid = 118, NR_setresgid = 119, NR_getresgid = 120, NR_capget = 125, NR_capset = 126,
	NR_mount = 165, NR_sethostname = 170, NR_mkdirat = 258, NR_fchownat = 260, NR_fchmodat = 268, NR_unshare = 272, NR_dup3 = 292,
	NR_prlimit64 = 302, NR_setns = 308, NR_seccomp = 317, NR_execveat = 322, NR_statx = 332,
	O_DIRECTORY = 0200000, O_NOFOLLOW = 0400000,
};
#elif defined(__aarch64__)
enum {
	NR_dup3 = 24, NR_ioctl = 29, NR_mkdirat = 34, NR_mount = 40, NR_chdir = 49, NR_fchmodat = 53, NR_fchownat = 54, NR_fchown = 55, NR_close = 57,
	NR_write = 64, NR_pread64 = 67, NR_unshare = 97, NR_capget = 90, NR_capset = 91, NR_setresuid = 147, NR_getresuid = 148, NR_setresgid = 149,
	NR_getresgid = 150, NR_setpgid = 154, NR_setsid = 157, NR_getgroups = 158, NR_setgroups = 159, NR_sethostname = 161,
	NR_recvmsg = 212, NR_munmap = 215, NR_clone = 220, NR_execve = 221, NR_mmap = 222, NR_wait4 = 260, NR_prlimit64 = 261, NR_setns = 268,
	NR_seccomp = 277, NR_execveat = 281, NR_statx = 291,
	O_DIRECTORY = 040000, O_NOFOLLOW = 0100000,
};
#endif
enum { // the same everywhere
	NR_open_tree = 428, NR_move_mount = 429, NR_clone3 = 435, NR_close_range = 436, NR_openat2 = 437, NR_mount_setattr = 442,
	NR_landlock_create_ruleset = 444, NR_landlock_add_rule = 445, NR_landlock_restrict_self = 446,
};

enum {
	CLONE_NEWNS = 0x20000, CLONE_NEWUSER = 0x10000000, CLONE_NEWCGROUP = 0x2000000, CLONE_NEWUTS = 0x4000000, CLONE_NEWIPC = 0x8000000,
	CLONE_NEWPID = 0x20000000, CLONE_NEWNET = 0x40000000, CLONE_PIDFD = 0x1000, CLONE_PARENT = 0x8000, SIGCHLD = 17,
	WNOHANG = 1, WUNTRACED = 2, ESRCH = 3, ENOTDIR = 20, EINVAL = 22, EPROTO = 71, ENOTSUPP = 524, EEXIST = 17,
	O_WRONLY = 1, O_CREAT = 0100, O_EXCL = 0200, O_NOCTTY = 0400, O_CLOEXEC = 02000000, O_PATH = 010000000,
	MS_BIND = 4096, MOUNT_ATTR_RDONLY = 1, OPEN_TREE_CLONE = 1, MOVE_MOUNT_F_EMPTY_PATH = 4, MOVE_MOUNT_T_EMPTY_PATH = 0x40,
	AT_SYMLINK_NOFOLLOW = 0x100, AT_EMPTY_PATH = 0x1000, STATX_TYPE_MODE = 3,
	RESOLVE_NO_MAGICLINKS = 2, RESOLVE_NO_SYMLINKS = 4, RESOLVE_BENEATH = 8, EAGAIN_TRIES = 32,
	S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFLNK = 0120000, S_IFDIR = 040000,
	PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32, CLOSE_RANGE_CLOEXEC = 4, MSG_CMSG_CLOEXEC = 0x40000000,
	MSG_TRUNC = 0x20, MSG_CTRUNC = 8,
	PR_CAPBSET_READ = 23, PR_CAPBSET_DROP = 24, PR_GET_SECUREBITS = 27, PR_SET_SECUREBITS = 28, PR_SET_NO_NEW_PRIVS = 38,
	PR_GET_NO_NEW_PRIVS = 39, PR_CAP_AMBIENT = 47, PR_CAP_AMBIENT_CLEAR_ALL = 4, PR_SET_NAME = 15,
	NO_SETUID_FIXUP = 4, RLIMIT_NPROC = 6, RLIMIT_MEMLOCK = 8, RLIMIT_SIGPENDING = 11, RLIMIT_MSGQUEUE = 12, SECCOMP_SET_MODE_FILTER = 1, LANDLOCK_RULE_PATH_BENEATH = 1,
	TCGETS = 0x5401, TCSETS = 0x5402, TIOCSCTTY = 0x540e, TIOCSPGRP = 0x5410, TIOCSPTLCK = 0x40045431, VSUSP = 10,
};
#define TIOCGPTN 0x80045430UL
#define CLONE_INTO_CGROUP 0x200000000ULL

struct clone_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};
struct open_how { uint64_t flags, mode, resolve; };
struct mount_attr { uint64_t set, clear, propagation, userns; };
struct statx { uint32_t mask, blksize; uint64_t attributes; uint32_t nlink, uid, gid; uint16_t mode, pad; uint64_t ino, size; char rest[208]; };
struct landlock_ruleset { uint64_t fs, net, scoped; };
struct landlock_path { uint64_t access; int32_t fd; } __attribute__((packed));
struct sock_fprog { uint16_t len; const void *filter; };
struct termios { uint32_t iflag, oflag, cflag, lflag; unsigned char line, cc[19]; };

#define SYS6(nr, a, b, c, d, e, f) sys6(NR_##nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#endif
