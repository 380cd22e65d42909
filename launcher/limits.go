package launcher

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// budget is what all commands of a session have together, and what each has of time and io.
type budget struct {
	group  *cgroup // of all commands
	share  share   // of one command
	shares shares  // version 1: the groups that have it
}

// commandShare is what the manifest gives one command.
func (s *Session) commandShare() (share, error) {
	m := s.Manifest.Sandbox
	return shareFor(m.CPUWeight, m.CPU, m.IORead, m.IOWrite, s.Workspace)
}

// openBudget makes the group that those of commands lie in.
func (s *Session) openBudget(one share) (*budget, error) {
	m, b := s.Manifest, &budget{share: one}
	all := share{weight: m.Session.CPUWeight, percent: m.Session.CPU, many: true, io: ioShare{device: one.io.device}}
	var err error
	b.group, err = newCgroup(s.cgroupPath("commands"), cgroupLimits{pids: m.Session.Pids, memory: uint64(m.Session.Memory), share: &all})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (b *budget) close() []error {
	return []error{b.shares.remove(), b.group.kill(), b.group.delete()}
}

// limitsFor are those of the group of one command.
func (sv *server) limitsFor(slot int) (cgroupLimits, error) {
	m, b := sv.s.Manifest, sv.budget
	joins, err := b.shares.of(slot, b.group.path, b.share)
	lim := cgroupLimits{pids: m.Sandbox.Pids + stagePids, memory: uint64(m.Sandbox.Memory), joins: joins}
	if joins == nil {
		lim.share = &b.share
	}
	return lim, err
}

// met is what was counted when a command began; groups that several use count for all of them.
type met struct {
	sessionPids uint64
	throttled   uint64 // microseconds
}

// meter reads only what may tell something: each file is a few microseconds of every command.
func (sv *server) meter(cg *cgroup) (m met) {
	if cg.v2 != nil { // version 1 counts at the member's own group
		m.sessionPids = counter(filepath.Join(sv.budget.group.dirs[0], "pids.events.local"), "max")
	}
	if sv.s.Manifest.Sandbox.CPU > 0 {
		if cg.joined != nil {
			cg = cg.joined
		}
		m.throttled = cg.throttled()
	}
	return m
}

// slowedBy is from when on a command is told that its share of the processors was what made it slow.
const slowedBy = time.Second

// limits are the bits of RecEnded.
func (sv *server) limits(dom *sandbox, c *runningCommand, x exit) uint64 {
	bits, before := c.beyond(), dom.before
	set := func(bit uint64, hit bool) {
		if hit {
			bits |= bit
		}
	}
	ownPids, abovePids := dom.cgroup.refusedPids()
	ownMemory, aboveMemory := dom.cgroup.outOfMemory()
	set(wire.LimitPids, ownPids)
	set(wire.LimitSessionPids, abovePids)
	set(wire.LimitMemory, ownMemory)
	set(wire.LimitSessionMemory, aboveMemory)
	if sv.s.Manifest.Sandbox.CPU > 0 {
		set(wire.LimitCPU, sv.meter(dom.cgroup).throttled > before.throttled+uint64(slowedBy.Microseconds()))
	}
	if x.signal != 0 || x.status != 0 {
		// The session's count says that somebody was refused while this command ran: told to those that failed.
		set(wire.LimitSessionPids, !ownPids && sv.meter(dom.cgroup).sessionPids > before.sessionPids)
		// RLIMIT_FSIZE is told by a signal; a shell passes that of its last command on as a status.
		set(wire.LimitFileSize, sv.s.Manifest.Sandbox.FileSize > 0 && (x.signal == int(unix.SIGXFSZ) || x.status == 128+int(unix.SIGXFSZ)))
		set(wire.LimitTmp, dom.held.full())
	}
	switch c.reason() {
	case wire.ReasonTimeout:
		bits |= wire.LimitTimeout
	case wire.ReasonOutputLimit:
		bits |= wire.LimitOutput
	}
	return bits
}

// refusedPids says whether a process was refused to a member, by this group's limit or by that of a group above. Version 1, and
// version 2 before Linux 6.11, count at the member's group whoever refused: there the peak tells them apart (Linux 6.1).
func (c *cgroup) refusedPids() (own, above bool) {
	if c.counter(0, "pids.events", "max") == 0 {
		return false, false
	}
	limit, err := c.number(0, "pids.max")
	if err != nil {
		return true, false
	}
	peak, err := c.number(0, "pids.peak")
	own = err != nil || peak >= limit
	return own, !own
}

// outOfMemory says whether a member was killed for want of memory, of this group's or of that of a group above. A victim counts
// for its own group, whose other counters say whose limit it was. On version 1 that is the peak (failcnt counts nothing on new
// kernels).
func (c *cgroup) outOfMemory() (own, above bool) {
	if c.v2 != nil {
		killed := c.counter(0, "memory.events", "oom_kill") > 0
		own = killed && c.counter(0, "memory.events", "oom") > 0
		return own, killed && !own
	}
	if c.counter(1, "memory.oom_control", "oom_kill") == 0 {
		return false, false
	}
	limit, err := c.number(1, "memory.limit_in_bytes")
	if err != nil {
		return true, false
	}
	return c.reached(limit), !c.reached(limit)
}

// reached says whether so much memory was in use at some moment, on version 1.
func (c *cgroup) reached(limit uint64) bool {
	for _, file := range []string{"memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes"} {
		if peak, err := c.number(1, file); err == nil && peak >= limit {
			return true
		}
	}
	return false
}

// commandRlimits are those of every domain, with what the manifest says of a command's.
func (s *Session) commandRlimits() []stage.Rlimit {
	all := rlimits()
	m := s.Manifest.Sandbox
	for i := range all {
		if all[i].Resource == unix.RLIMIT_NOFILE {
			all[i].Soft, all[i].Hard = min(1024, uint64(m.OpenFiles)), uint64(m.OpenFiles)
		}
	}
	if m.FileSize > 0 {
		all = append(all, stage.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: uint64(m.FileSize), Hard: uint64(m.FileSize)})
	}
	return all
}

// space is the tmpfs of a command's private folders, which sandbox.tmp bounds. It is held while the command runs: the
// namespace that shows it goes with the last process. -1: none.
type space int

// openSpace opens a folder of it below the root of pid 1, which is read-only and none of whose folders the command can replace.
func openSpace(pid int) space {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1 // it has ended
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, "tmp", &how)
	if err != nil {
		return -1
	}
	return space(fd)
}

// fullBelow is the room that is as good as none.
const fullBelow = 64 << 10

// full says whether it has no room left.
func (sp space) full() bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(sp), &st) == nil && st.Type == unix.TMPFS_MAGIC && st.Blocks > 0 &&
		(st.Bavail*uint64(st.Bsize) < fullBelow || st.Files > 0 && st.Ffree == 0)
}

func (sp space) close() {
	if sp >= 0 {
		unix.Close(int(sp))
	}
}

// firstVictim is the oom_score_adj of a command: when the host itself runs out of memory, one of them is ended before anything
// else, the server and the orchestrator not before the last of them (proc(5)). A process without CAP_SYS_RESOURCE cannot lower
// what one with it has set.
const firstVictim = "900"
