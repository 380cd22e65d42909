// Giving up: descriptors, ids, privileges, and the layers that stay.
#ifndef DROP_H
#define DROP_H

#include "view.h"

// keep closes every descriptor above 2 but these.
static long keep(const int *fds, unsigned n)
{
	for (unsigned low = 3;;) {
		unsigned next = ~0U;
		for (unsigned i = 0; i < n; i++)
			if (fds[i] >= (int)low && (unsigned)fds[i] < next)
				next = (unsigned)fds[i];
		if (next > low)
			TRY("close_range", "", SYS(close_range, low, next == ~0U ? next : next - 1, 0, 0, 0));
		if (next == ~0U)
			return 0;
		low = next + 1;
	}
}

// ruleset makes the layer of the target. It is made for each sandbox, since a rule is bound to the folder and each has
// some of its own.
static long ruleset(void)
{
	if (!plan->attr_size)
		return at("", "", -1);
	long rs = SYS(landlock_create_ruleset, &plan->layer, plan->attr_size, 0, 0, 0);
	TRY("landlock: create ruleset", "", rs);
	for (const struct op *o = plan->op; o->code; o = after(o)) {
		if (o->code != OP_RULE)
			continue;
		struct landlock_path p = {o->a, (int32_t)o->b};
		if ((int64_t)o->b < 0) {
			long fd = SYS(openat, AT_FDCWD, o->text, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, 0);
			TRY("landlock: open ", o->text, fd);
			p.fd = (int32_t)fd;
		}
		TRY("landlock: add rule ", o->text, SYS(landlock_add_rule, rs, LANDLOCK_RULE_PATH_BENEATH, &p, 0, 0));
	}
	return rs;
}

static long restrict_self(long rs, const char *which)
{
	return at("landlock: ", which, rs < 0 ? 0 : SYS(landlock_restrict_self, rs, 0, 0, 0, 0));
}

static long check(const char *what, int ok)
{
	return at(what, ": reads back another value", ok ? 0 : -EPROTO);
}

// limits sets those that sharness-box sets for itself, or those of each sandbox, which looks at what it inherited.
static long limits(int own)
{
	for (const struct op *o = plan->op; o->code; o = after(o)) {
		uint64_t got[2], want[2];
		if (o->code != OP_RLIMIT)
			continue;
		if (own == (int)o->b) {
			TRY("rlimit", "", SYS(prlimit64, 0, o->a, o->text, 0, 0));
		} else if (!own) {
			memcpy(want, o->text, sizeof want);
			TRY("rlimit", "", SYS(prlimit64, 0, o->a, 0, got, 0));
			PASS(check("rlimit", got[0] == want[0] && got[1] == want[1]));
		}
	}
	return 0;
}

static long filters(int own)
{
	for (const struct op *o = plan->op; o->code; o = after(o))
		if (o->code == OP_FILTER && own == (int)o->b) {
			struct sock_fprog f = {(uint16_t)(o->a / 8), o->text};
			long r = SYS(seccomp, SECCOMP_SET_MODE_FILTER, 0, &f, 0, 0);
			TRY("seccomp", r == -ENOTSUPP ? ": the host's net.core.bpf_jit_limit is used up" : "", r);
		}
	return 0;
}

// unbound empties what an exec could fill again: bounding set, securebits, ambient set.
static long unbound(void)
{
	for (long c = 0, r; (r = SYS(prctl, PR_CAPBSET_DROP, c, 0, 0, 0)) != -EINVAL; c++) { // which is the kernel's word for the end
		TRY("drop bounding set", "", r);
		PASS(check("drop bounding set", SYS(prctl, PR_CAPBSET_READ, c, 0, 0, 0) == 0));
	}
	TRY("securebits", "", SYS(prctl, PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0));
	PASS(check("securebits", SYS(prctl, PR_GET_SECUREBITS, 0, 0, 0, 0) == SECUREBITS));
	TRY("clear ambient capabilities", "", SYS(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	return 0;
}

// bounded gives up what sharness-box does not need itself: it executes nothing and makes few calls.
static long bounded(void)
{
	PASS(unbound());
	PASS(limits(1));
	return filters(1);
}

// give_up empties ids and privileges, in the order that launcher/stage has, and loads the last filter. What follows has to be
// allowed by them: fork, Landlock, and what the two processes wait with. A user namespace gives every capability anew to who
// enters it (user_namespaces(7)), the bounding set too.
static long give_up(void)
{
	uint32_t uid = plan->uid, gid = plan->gid;
	PASS(unbound());
	TRY("setgroups", "", SYS(setgroups, 0, 0, 0, 0, 0));
	TRY("setresgid", "", SYS(setresgid, gid, gid, gid, 0, 0));
	TRY("setresuid", "", SYS(setresuid, uid, uid, uid, 0, 0));
	uint32_t u[3], head[2] = {0x20080522, 0}, caps[6] = {0}, any = 0;
	TRY("getresuid", "", SYS(getresuid, u, u + 1, u + 2, 0, 0));
	PASS(check("setresuid", u[0] == uid && u[1] == uid && u[2] == uid));
	TRY("getresgid", "", SYS(getresgid, u, u + 1, u + 2, 0, 0));
	PASS(check("setresgid", u[0] == gid && u[1] == gid && u[2] == gid && SYS(getgroups, 0, 0, 0, 0, 0) == 0));
	TRY("capset", "", SYS(capset, head, caps, 0, 0, 0));
	TRY("capget", "", SYS(capget, head, caps, 0, 0, 0));
	for (int i = 0; i < 6; i++)
		any |= caps[i];
	PASS(check("capset", !any));
	// setresuid cleared the first and set the second.
	TRY("pdeathsig", "", SYS(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	TRY("dumpable", "", SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0));
	TRY("no_new_privs", "", SYS(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	PASS(check("no_new_privs", SYS(prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1));
	PASS(restrict_self(plan->outer, "outer domain"));
	return filters(0);
}

#endif
