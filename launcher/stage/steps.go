package stage

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// Steps are what sharness-box does to a view, in order, as its plan.h has them.
type Steps struct{ buf []byte }

const (
	opMount = 1 + iota
	opOwner
	opMkdir
	opBind
	opSysctl
	opMask
	opSeal
	opRule
	opFilter
	opAttach
	opRoot
	opEntry
	opRlimit

	stepHead = 24
)

// add appends a step. Texts cannot hold a NUL: they are paths and options of ours, and of files that exist.
func (s *Steps) add(code uint32, a, b uint64, texts ...string) {
	var text string
	for _, t := range texts {
		text += t + "\x00"
	}
	s.raw(code, a, b, text)
}

func (s *Steps) raw(code uint32, a, b uint64, data string) {
	size := stepHead + (len(data)+7)&^7
	s.buf = binary.NativeEndian.AppendUint32(s.buf, code)
	s.buf = binary.NativeEndian.AppendUint32(s.buf, uint32(size))
	s.buf = binary.NativeEndian.AppendUint64(s.buf, a)
	s.buf = binary.NativeEndian.AppendUint64(s.buf, b)
	s.buf = append(s.buf, data...)
	s.buf = append(s.buf, make([]byte, size-stepHead-len(data))...)
}

// Bytes ends the list and returns it.
func (s *Steps) Bytes() []byte { return binary.NativeEndian.AppendUint64(s.buf, 0) }

// Attach attaches one of the mounts that go with the list, by its place among them.
func (s *Steps) Attach(n int, target string) { s.add(opAttach, uint64(n), 0, target) }

// Mount takes a step for a mount without a descriptor.
func (s *Steps) Mount(m Mount) error {
	switch {
	case m.Fstype != "":
		flags, err := mountFlags(m.Set)
		if err != nil {
			return fmt.Errorf("mount on %s: %w", m.Target, err)
		}
		s.add(opMount, flags, 0, m.Fstype, m.Target, m.Data)
	case m.Bind != "" && m.Clear == 0 && (m.Bind == m.Target || m.Mode != 0):
		absent := uint64(0)
		if m.Mode != 0 {
			s.add(opMkdir, uint64(m.Mode), 0, m.Bind)
		}
		if m.Absent {
			absent = 1
		}
		s.add(opBind, m.Set, absent, m.Bind, m.Target)
	default:
		return fmt.Errorf("mount on %s: not one that a sandbox makes", m.Target)
	}
	return nil
}

// mountFlags turns attributes into the flags of mount(2), which makes a mount with one call.
func mountFlags(attr uint64) (uint64, error) {
	flags := uint64(0)
	for _, f := range [][2]uint64{
		{unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY}, {unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID}, {unix.MOUNT_ATTR_NODEV, unix.MS_NODEV},
		{unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
	} {
		if attr&f[0] != 0 {
			flags |= f[1]
			attr &^= f[0]
		}
	}
	if attr != 0 {
		return 0, fmt.Errorf("attributes %#x have no flag", attr)
	}
	return flags, nil
}

// Protect takes the steps for what must not change. What is gone by then is no error: the user removed it outside.
func (s *Steps) Protect(p *Protected) error {
	if p == nil || len(p.Entries) == 0 {
		return nil
	}
	s.add(opRoot, 0, 0, p.Root)
	kinds := map[protect.Kind]uint64{"file": 1, "dir": 2, "link": 3, "socket": 4}
	for _, e := range p.Entries {
		kind, readOnly := kinds[e.Kind], uint64(0)
		if kind == 0 || strings.IndexByte(string(e.Rel), 0) >= 0 {
			return fmt.Errorf("protect %q: kind %q", e.Rel, e.Kind)
		}
		if e.ReadOnly {
			readOnly = 1
		}
		s.add(opEntry, readOnly, kind, string(e.Rel))
	}
	return nil
}
