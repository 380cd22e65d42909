// Steps of a view: what a sandbox mounts for itself, and what is attached from outside just before its command runs.
#ifndef VIEW_H
#define VIEW_H

#include "say.h"

// attached puts a mount where a path is. The last component is not followed: a link must not move the mount elsewhere.
static long attached(long fd, const char *target)
{
	long r = SYS(move_mount, fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
	SYS(close, fd, 0, 0, 0, 0);
	return r;
}

static long bind(const char *from, const char *target, uint64_t set)
{
	struct mount_attr attr = {.set = set};
	long fd = SYS(open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | O_CLOEXEC | AT_SYMLINK_NOFOLLOW, 0, 0);
	TRY("mount: open_tree ", from, fd);
	long r = SYS(mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof attr);
	if (r < 0) {
		SYS(close, fd, 0, 0, 0, 0);
		return at("mount: attributes of ", target, r);
	}
	return at("mount: attach ", target, attached(fd, target));
}

static uint32_t mode_of(long fd, const char *path, long *err)
{
	struct statx st;
	*err = SYS6(statx, fd, path, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_TYPE_MODE, &st, 0);
	return *err < 0 ? 0 : st.mode;
}

// mask hides a file behind /dev/null and a folder behind an empty one. What this kernel does not have needs no mask.
//
// The kind is known before: a mount of the wrong one would be made, refused and undone.
static long mask(const char *path, int folder)
{
	// Attributes are those of what is bound.
	long r = SYS(mount, folder ? VOID : "/dev/null", path, 0, MS_BIND, 0);
	return at("proc: mask ", path, r == -ENOENT ? 0 : r);
}

// sysctl writes a value and reads it back: one that was not taken would leave a door open in silence.
static long sysctl(const char *path, const char *value)
{
	char got[64];
	size_t n = length(value);
	long fd = SYS(openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0, 0);
	TRY("sysctl: open ", path, fd);
	TRY("sysctl: write ", path, SYS(write, fd, value, n, 0, 0));
	long have = SYS(pread64, fd, got, sizeof got - 1, 0, 0);
	SYS(close, fd, 0, 0, 0, 0);
	TRY("sysctl: read back ", path, have);
	if (have > 0 && got[have - 1] == '\n')
		have--;
	got[have] = 0;
	return at("sysctl: reads back another value than was written: ", path, same(got, value) ? 0 : -EPROTO);
}

// entry binds a protected entry of the workspace on itself (launcher/protect, Attach, says what and why).
static long entry(long root, const char *rel, int readonly, unsigned kind)
{
	struct open_how how = {(uint64_t)(O_PATH | O_NOFOLLOW | O_CLOEXEC), 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd, err;
	int tries = 0;
	do // a rename elsewhere raced with the lookup; openat2(2) asks for another try
		fd = SYS(openat2, root, *rel ? rel : ".", &how, sizeof how, 0);
	while ((fd == -EAGAIN || fd == -EINTR) && ++tries < EAGAIN_TRIES);
	if (fd == -ENOENT)
		return 0; // the user removed it outside, or who listened there has ended
	TRY("protect: open ", rel, fd);
	uint32_t type = mode_of(fd, "", &err) & S_IFMT;
	TRY("protect: look at ", rel, err);
	long tree = -1;
	struct mount_attr attr = {.set = readonly ? MOUNT_ATTR_RDONLY : 0};
	if (kind == KIND_SOCKET) {
		if (type != S_IFSOCK)
			goto done;
		tree = SYS(open_tree, AT_FDCWD, "/dev/null", OPEN_TREE_CLONE | O_CLOEXEC, 0, 0);
	} else {
		if (kind != (type == S_IFDIR ? KIND_DIR : type == S_IFLNK ? KIND_LINK : KIND_FILE)) {
			err = at("protect: is of another kind than it was: ", rel, -EPROTO);
			goto done;
		}
		tree = SYS(open_tree, fd, "", OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH, 0, 0);
	}
	err = at("protect: open_tree ", rel, tree);
	if (tree < 0)
		goto done;
	err = at("protect: attributes of ", rel, SYS(mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr));
	if (err >= 0)
		err = at("protect: attach ", rel, SYS(move_mount, tree, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
	SYS(close, tree, 0, 0, 0, 0);
done:
	SYS(close, fd, 0, 0, 0, 0);
	return err;
}

// decimal writes n before end and returns where it begins.
static char *decimal(uint32_t n, char *end)
{
	*--end = 0;
	do
		*--end = (char)('0' + n % 10);
	while (n /= 10);
	return end;
}

// step_view takes one step of a view.
static long step_view(const struct op *o, uint32_t uid, const int *fds, long *root)
{
	const char *a = o->text, *b = a + length(a) + 1, *c = b + length(b) + 1;
	struct mount_attr readonly = {.set = MOUNT_ATTR_RDONLY};
	switch (o->code) {
	case OP_MOUNT:
		return at("mount: attach ", b, SYS(mount, "none", b, a, o->a, c));
	case OP_OWNER:
		return at("mount: owner of ", a, SYS(fchownat, AT_FDCWD, a, uid, uid, AT_SYMLINK_NOFOLLOW));
	case OP_MKDIR: {
		long r = SYS(mkdirat, AT_FDCWD, a, o->a, 0, 0);
		if (r >= 0)
			r = SYS(fchmodat, AT_FDCWD, a, o->a, 0, 0); // whatever the umask is
		return at("mount: make ", a, r == -EEXIST ? 0 : r);
	}
	case OP_BIND: {
		long r = bind(a, b, o->a);
		return r == -ENOENT && o->b ? 0 : r;
	}
	case OP_SYSCTL:
		return sysctl(a, b);
	case OP_MASK:
		return mask(a, o->a != 0);
	case OP_SEAL:
		return at("mount: make read-only ", a, SYS(mount_setattr, AT_FDCWD, a, 0, &readonly, sizeof readonly));
	case OP_ATTACH:
		return at("mount: attach ", a, SYS(move_mount, fds[o->a], "", AT_FDCWD, a, MOVE_MOUNT_F_EMPTY_PATH));
	case OP_ROOT:
		*root = SYS(openat, AT_FDCWD, a, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0);
		return at("protect: open ", a, *root);
	case OP_ENTRY:
		return entry(*root, a, (int)o->a, (unsigned)o->b);
	}
	return 0; // not of a view
}

static const struct op *after(const struct op *o)
{
	return (const struct op *)((const char *)o + o->size);
}

#endif
