// What launcher/stage/box.go writes for sharness-box, and the messages between it, the supervisor and sandboxes
// (launcher/stage/status.go is the original of those).
#ifndef PLAN_H
#define PLAN_H

#define VOID "/run/sharness/void"  // an empty folder

enum {
	MSG_ERROR = 1, MSG_TERMINAL = 2, MSG_STOPPED = 4, MSG_EXITED = 5, MSG_LEFT = 6, MSG_READY = 7, MSG_MADE = 8, MSG_BEGUN = 9,
	MSG_SIGNAL = 16, MSG_CONTINUE = 17, MSG_DRESSED = 18, MSG_GO = 19,
	KIND_FILE = 1, KIND_DIR = 2, KIND_LINK = 3, KIND_SOCKET = 4,
	SECUREBITS = 0xef, // internal/confine/caps.go
};

// Steps. Texts stand one behind the other, each ended by a NUL.
enum {
	OP_MOUNT = 1, // a: MS_* flags; file system, target, options
	OP_OWNER,     // path, given to the sandbox's id
	OP_MKDIR,     // a: mode; path
	OP_BIND,      // a: attributes to set, b: that it is gone is no error; what, where
	OP_SYSCTL,    // path, value
	OP_MASK,      // a: a folder; path
	OP_SEAL,      // path
	OP_RULE,      // a: rights, b: descriptor or -1; path
	OP_FILTER,    // a: bytes, b: sharness-box carries it itself; a filter
	OP_ATTACH,    // a: which of the mounts; path
	OP_ROOT,      // path beneath which entries lie
	OP_ENTRY,     // a: read-only, b: kind; path
	OP_RLIMIT,    // a: resource, b: sharness-box sets it for itself; soft and hard, u64 each
};

struct op {
	uint32_t code, size;
	uint64_t a, b;
	char text[];
};

struct plan {
	char hostname[64], below[MAX_PATH + 1];
	struct landlock_ruleset layer;
	uint32_t attr_size; // of layer for the ABI in force; 0: no layer
	int32_t outer, deny, home; // descriptors: rulesets of pid 1 (-1: none), and the mount namespace
	uint32_t uid, gid;         // as the processes of a sandbox see their own
	struct op op[];
};

enum { ORDER_MAKE = 1, ORDER_START = 2, MAKE_TERMINAL = 1, MAKE_PROBE = 2, MAKE_GROUP = 4 };

// An order of the supervisor. uid is the kernel's. Of ORDER_START it is how many descriptors the target gets.
struct make { uint32_t op, uid, flags, tasks; };

#endif
