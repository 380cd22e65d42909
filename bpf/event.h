/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one definition of a record. Each record is a fixed part, which begins with struct head, and after it the texts,
 * one behind the other without a byte in between, text_len[] long each. Package agent decodes them and nobody else.
 */
#ifndef SHARNESS_EVENT_H
#define SHARNESS_EVENT_H

/* PATH_MAX: no text is longer. Without a NUL, that is one byte less than the kernel's own bound. */
#define TEXT_MAX 4096
#define TEXTS 4
#define MAX_SLOTS 8
#define MAX_CALLS 512
#define ADDR_MAX 128
/* Of the arguments of a refused exec so many are read, so much of each, the NUL included. */
#define ARGV_MAX 16
#define ARG_MAX 128

enum kind {
	KIND_EXEC = 1,
	KIND_FORK,
	KIND_EXIT,
	KIND_MAP,
	KIND_DENIAL,
	KIND_KILLED, /* by a seccomp filter: SIGSYS */
	KIND_TRIED,  /* for learning: what a call did not find or was refused, or a signal that was sent (ret is 0); each once */
};

/* Which of head.text_len is what. */
enum text {
	TEXT_EXE,   /* the image that runs, by a walk from its dentry to the task's root */
	TEXT_ASKED, /* the string that the program passed, or the name of the exec */
	TEXT_BASE,  /* a descriptor's file, or the folder that a relative TEXT_ASKED begins at; the interpreter of an exec */
	TEXT_MORE,  /* of a denial: the old name of a rename or link; the arguments of an exec, each with its NUL */
};

enum record_flag {
	/* For each text: TEXT_* shifted by its index times four. */
	FLAG_TRUNCATED = 1 << 0,  /* there was more */
	FLAG_UNREADABLE = 1 << 1, /* the memory could not be read */
	FLAG_OUTSIDE = 1 << 2,    /* the walk ended at another root than the task's */
	FLAG_DETACHED = 1 << 3,   /* no place in any tree: memfd, pipe, socket */

	FLAG_FILE = 1 << 16,    /* file is filled in */
	FLAG_ADDR = 1 << 17,    /* TEXT_ASKED is a socket address */
	FLAG_SOCKET = 1 << 18,  /* sock_* are filled in */
	FLAG_NOEXEC = 1 << 19,  /* the file lies on a mount that is noexec */
	FLAG_BY_FD = 1 << 20,   /* the mapping's file was taken from the descriptor, not from the mapping */
	FLAG_WIDE_NR = 1 << 21, /* the register with the call's number had bits set that the kernel leaves out of it */
	FLAG_LSM = 1 << 22,     /* a security module refused */
};

/* Each class of denials has a ring of its own: a flood of one cannot push out another's first. */
enum class {
	CLASS_EXEC,
	CLASS_PROCESS,
	CLASS_NET,
	CLASS_FILE,
	CLASSES,
};

/* A process, by what identifies it: pid and start. Pids are the host's. */
struct process {
	__u64 start_ns; /* since boot */
	__u64 parent_start_ns;
	__u32 pid;
	__u32 tid;
	__u32 ns_pid;
	__u32 parent;
	__u32 uid;
	__u32 euid;
	char comm[16];
};

struct head {
	__u64 time_ns; /* CLOCK_BOOTTIME */
	enum kind kind;
	__u32 slot; /* of the cgroup */
	enum record_flag flags;
	__u32 text_len[TEXTS];
	__u32 pad;
	struct process who;
};

/* A file as the kernel knows it. dev is that of the superblock, which on overlayfs is not what stat(2) says. */
struct image {
	__u64 ino;
	__u64 size;
	__s64 ctime_s;
	__u32 ctime_ns;
	__u32 dev;
	__u32 nlink;
	__u32 uid;
	__u32 mode;
	__u32 pad;
};

/* An exec, a mapping, a denial: whatever has texts. An exec has its caller's tid in args[0], a mapping its address. */
struct event {
	struct head head;
	struct image file; /* of the image, the mapping, or the descriptor: FLAG_FILE */
	__u64 args[6];
	__u64 repeats; /* of the same key that were shed since the last record of it */
	__s32 nr;
	__s32 ret;
	enum class class;
	__u16 sock_family; /* of the descriptor: FLAG_SOCKET */
	__u16 sock_type;
	__u16 sock_protocol;
	__u16 pad;
	__u32 arch; /* of a KIND_KILLED: AUDIT_ARCH_* */
};

/* A process began (who is the child) or ended. */
struct life {
	struct head head;
	__s32 code; /* of an end, as wait(2) gives it */
	__u32 pad;
};

/* What is worth a record, for each number of a system call. Written by the loader. */
enum call_flag {
	CALL_DENIED = 1 << 0,  /* EACCES and EPERM */
	CALL_NOSYS = 1 << 1,   /* ENOSYS, where our own filter answers it */
	CALL_UNREACH = 1 << 2, /* ENETUNREACH and EHOSTUNREACH */
	CALL_PROT = 1 << 3,    /* only with PROT_EXEC in the third argument */
	CALL_MSGHDR = 1 << 4,  /* addr is a struct msghdr */
	CALL_MAPS = 1 << 5,    /* success makes an executable mapping of a file */
	CALL_VMA = 1 << 6,     /* the first argument is an address: its file says what was refused */
	CALL_ROFS = 1 << 7,    /* EROFS */
	CALL_BUSY = 1 << 8,    /* EBUSY: the name is a mount point */
	CALL_TRIED = 1 << 9,   /* ENOENT, EROFS and ECONNREFUSED, and what CALL_DENIED has unless that is set too */
	CALL_SENT = 1 << 10,   /* success sent a signal */
	CALL_ARGV = 1 << 11,   /* more is a list of strings, not one */
	CALL_SETID = 1 << 12,  /* CALL_DENIED only where it would make a file with a set-id bit */
};

/* Indexes into the arguments, or -1. */
struct call {
	enum call_flag flags;
	__u8 class;
	__s8 path;  /* a string */
	__s8 dirfd; /* what a relative path begins at; AT_FDCWD without one */
	__s8 fd;    /* a descriptor whose file says what was refused */
	__s8 addr;  /* a socket address, its length in the next argument */
	__s8 more;  /* what TEXT_MORE is read from */
	__s8 mode;  /* of a new file; the flags that make one are before it, where it is not 1 */
	__u8 keyed; /* a bit for each that tells two denials apart whose texts are the same */
};

/* Produced = read by user space + lost + shed. */
struct counts {
	__u64 produced;
	__u64 lost; /* the ring was full */
	__u64 shed; /* a repetition while the ring filled up; see event.repeats */
};

#endif
