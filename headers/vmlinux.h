/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The part of a kernel's type information that the programs in ../bpf read, written by hand after the kernel's BTF:
 * names and types are the kernel's, offsets are not (preserve_access_index: they are filled in at load, CO-RE), and
 * fields that nobody reads are left out. It is the same for every architecture but for pt_regs and thread_info.
 */
#ifndef SHARNESS_VMLINUX_H
#define SHARNESS_VMLINUX_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __s64 time64_t;
typedef unsigned long size_t;
typedef _Bool bool;

enum {
	false = 0,
	true = 1,
};

enum bpf_map_type {
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct qstr {
	union {
		struct {
			__u32 hash;
			__u32 len;
		};
		__u64 hash_len;
	};
	const unsigned char *name;
};

struct timespec64 {
	time64_t tv_sec;
	long tv_nsec;
};

typedef struct {
	__u32 val;
} kuid_t;

struct super_block {
	__u32 s_dev;
	unsigned long s_iflags;
};

struct inode {
	__u16 i_mode;
	kuid_t i_uid;
	struct super_block *i_sb;
	unsigned long i_ino;
	union {
		const unsigned int i_nlink;
		unsigned int __i_nlink;
	};
	__s64 i_size;
};

/* The change time moved twice: before 6.6, from 6.6 to 6.10, and since. */
struct inode___ctime {
	struct timespec64 i_ctime;
};
struct inode___wrapped {
	struct timespec64 __i_ctime;
};
struct inode___split {
	time64_t i_ctime_sec;
	__u32 i_ctime_nsec;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
	int mnt_flags;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path root;
	struct path pwd;
};

struct mm_struct {
	struct file *exe_file;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct sock_common {
	unsigned short skc_family;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
};

struct socket {
	short type;
	struct sock *sk;
};

struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct cred {
	kuid_t uid;
	kuid_t euid;
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
};

struct thread_info {
	unsigned long flags;
	__u32 status;
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	int exit_code;
	__u64 start_boottime;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	const struct cred *cred;
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct mm_struct *mm;
	char comm[16];
};

struct linux_binprm {
	const char *filename;
	const char *interp;
};

struct kernel_siginfo {
	int si_signo;
	int si_errno;
	int si_code;
	union {
		struct {
			void *_call_addr;
			int _syscall;
			unsigned int _arch;
		} _sigsys;
	} _sifields;
};

/* The registers that a system call was made with, as the kernel saved them. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};
#else
#error "neither x86 nor arm64"
#endif

#pragma clang attribute pop

/* What programs pass to system calls: fixed by the ABI, not relocated. */
struct user_msghdr {
	void *msg_name;
	int msg_namelen;
};

#endif
