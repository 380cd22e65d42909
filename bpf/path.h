/* SPDX-License-Identifier: GPL-2.0-only */
/* Texts of a record: paths by a bounded walk over dentries, strings of the program, strings of the kernel. */
#ifndef SHARNESS_PATH_H
#define SHARNESS_PATH_H

/* Components of one path. A path of TEXT_MAX bytes could have more; what is deeper is marked as cut. */
#define WALK_MAX 256
#define NAME_MAX 255

#define MNT_NOEXEC 4
#define SB_I_NOEXEC 2

/* The texts of one record, one behind the other, with room for one of full length at the last offset. */
#define TEXT_ROOM (TEXTS * TEXT_MAX)

/*
 * The largest value that a per-CPU map can hold is 32 KiB. Each program has a slot of its own: programs of the same
 * CPU may interrupt one another, the same program does not.
 */
struct scratch {
	struct event ev;
	char text[TEXT_ROOM]; /* directly behind it: both go out as one piece */
	char walk[TEXT_MAX + NAME_MAX + 1];
};

enum { SCRATCH_EXEC, SCRATCH_EXIT, SCRATCH_SIGNAL, SCRATCHES };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct walk {
	struct dentry *dentry;
	struct mount *mnt;
	struct dentry *root_dentry;
	struct mount *root_mnt;
	__u32 pos; /* where the path begins in scratch.walk */
	__u32 flags;
	__u32 scratch;
	__u32 done;
};

static struct mount *real_mount(struct vfsmount *mnt)
{
	return (void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

static long walk_step(__u32 i, void *ctx)
{
	struct walk *w = ctx;
	struct dentry *dentry = w->dentry, *parent;
	struct mount *mnt = w->mnt;
	const unsigned char *name;
	__u32 key = w->scratch, len, pos = w->pos;
	struct scratch *s;

	if (dentry == w->root_dentry && mnt == w->root_mnt) {
		w->done = 1;
		return 1;
	}
	parent = BPF_CORE_READ(dentry, d_parent);
	if (dentry == BPF_CORE_READ(mnt, mnt.mnt_root)) {
		struct mount *up = BPF_CORE_READ(mnt, mnt_parent);

		if (up != mnt) {
			w->dentry = BPF_CORE_READ(mnt, mnt_mountpoint);
			w->mnt = up;
			return 0;
		}
		if (parent == dentry) {
			w->flags |= FLAG_OUTSIDE;
			w->done = 1;
			return 1;
		}
	}
	s = bpf_map_lookup_elem(&scratches, &key);
	if (!s)
		return 1;
	len = BPF_CORE_READ(dentry, d_name.len);
	name = BPF_CORE_READ(dentry, d_name.name);
	if (len > NAME_MAX || pos > TEXT_MAX || len + 1 >= pos) {
		w->flags |= FLAG_TRUNCATED;
		w->done = 1;
		return 1;
	}
	pos -= len + 1;
	s->walk[pos & (TEXT_MAX - 1)] = '/';
	bpf_probe_read_kernel(&s->walk[(pos & (TEXT_MAX - 1)) + 1], len & NAME_MAX, name);
	w->pos = pos;
	w->dentry = parent;
	if (parent == dentry) {
		w->flags |= FLAG_DETACHED;
		w->done = 1;
		return 1;
	}
	return 0;
}

/* The offset behind the texts so far, which the verifier has to see bounded. */
static __always_inline __u32 text_end(struct head *h)
{
	__u32 off = 0;

	for (int i = 0; i < TEXTS; i++)
		off += h->text_len[i] & (TEXT_MAX - 1);
	return off;
}

/* Appends the path of a file, as a task with this root sees it. Texts have to be appended in order. */
static __noinline int add_path(__u32 key, enum text which, struct dentry *dentry, struct vfsmount *mnt)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &key);
	struct task_struct *task = bpf_get_current_task_btf();
	struct walk w = {};
	struct head *h;
	__u32 len, off;

	if (!s || which >= TEXTS)
		return 0;
	h = &s->ev.head;
	w.dentry = dentry;
	w.mnt = real_mount(mnt);
	w.root_dentry = BPF_CORE_READ(task, fs, root.dentry);
	w.root_mnt = real_mount(BPF_CORE_READ(task, fs, root.mnt));
	w.pos = TEXT_MAX;
	w.scratch = key;
	bpf_loop(WALK_MAX, walk_step, &w, 0);
	if (!w.done)
		w.flags |= FLAG_TRUNCATED;
	if (w.pos == TEXT_MAX && !(w.flags & FLAG_TRUNCATED)) /* the root itself */
		s->walk[--w.pos & (TEXT_MAX - 1)] = '/';
	if (w.pos > TEXT_MAX)
		return 0;
	len = TEXT_MAX - w.pos;
	off = text_end(h);
	if (off > TEXT_ROOM - TEXT_MAX || len >= TEXT_MAX)
		return 0;
	bpf_probe_read_kernel(&s->text[off], len & (TEXT_MAX - 1), &s->walk[w.pos & (TEXT_MAX - 1)]);
	h->text_len[which] = len;
	h->flags |= w.flags << (4 * which);
	return 0;
}

static __always_inline void add_text(struct scratch *s, enum text which, const void *from, bool user)
{
	struct head *h = &s->ev.head;
	__u32 off = text_end(h);
	long n;

	if (off > TEXT_ROOM - TEXT_MAX)
		return;
	n = user ? bpf_probe_read_user_str(&s->text[off], TEXT_MAX, from) : bpf_probe_read_kernel_str(&s->text[off], TEXT_MAX, from);
	if (n < 1 || n > TEXT_MAX) {
		h->flags |= FLAG_UNREADABLE << (4 * which);
		return;
	}
	/* The kernel cuts at the size and ends with a NUL: a text of exactly that length is marked too, and is none. */
	if (n == TEXT_MAX)
		h->flags |= FLAG_TRUNCATED << (4 * which);
	h->text_len[which] = n - 1;
}

static __always_inline void describe(struct image *im, struct inode *inode)
{
	im->ino = BPF_CORE_READ(inode, i_ino);
	im->size = BPF_CORE_READ(inode, i_size);
	im->mode = BPF_CORE_READ(inode, i_mode);
	im->nlink = BPF_CORE_READ(inode, i_nlink);
	im->uid = BPF_CORE_READ(inode, i_uid.val);
	im->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	im->pad = 0;
	if (bpf_core_field_exists(struct inode___split, i_ctime_sec)) {
		struct inode___split *split = (void *)inode;

		im->ctime_s = BPF_CORE_READ(split, i_ctime_sec);
		/* The top bit says that somebody looked (I_CTIME_QUERIED, 6.13). */
		im->ctime_ns = BPF_CORE_READ(split, i_ctime_nsec) & 0x7fffffff;
	} else if (bpf_core_field_exists(struct inode___wrapped, __i_ctime)) {
		struct inode___wrapped *wrapped = (void *)inode;

		im->ctime_s = BPF_CORE_READ(wrapped, __i_ctime.tv_sec);
		im->ctime_ns = BPF_CORE_READ(wrapped, __i_ctime.tv_nsec);
	} else {
		struct inode___ctime *plain = (void *)inode;

		im->ctime_s = BPF_CORE_READ(plain, i_ctime.tv_sec);
		im->ctime_ns = BPF_CORE_READ(plain, i_ctime.tv_nsec);
	}
}

/* As path_noexec() decides: the mount, or the whole file system (proc, sysfs). */
static __always_inline bool on_noexec(struct file *file)
{
	return BPF_CORE_READ(file, f_path.mnt, mnt_flags) & MNT_NOEXEC ||
	       BPF_CORE_READ(file, f_path.mnt, mnt_sb, s_iflags) & SB_I_NOEXEC;
}

/*
 * The file behind a descriptor at this moment. Another thread may have put another one there since the call: for a
 * denial that changes what is shown, never whether it is.
 */
static __always_inline struct file *file_of(int fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **slots = BPF_CORE_READ(table, fd), *file = 0;

	if (fd < 0 || (__u32)fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	return file;
}

#endif
