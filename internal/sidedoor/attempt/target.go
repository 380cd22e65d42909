package attempt

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Target is where the attempts are made: the bait, and what the probe knows about itself.
type Target struct {
	Bait
	Self    string // path of the running program
	Dynamic bool   // it was started by the dynamic loader, Loader
	Loader  string
	Born    Birth

	// arena is memory below 4 GiB, so that its addresses are good for int 0x80 too; it does not move and is not
	// collected, so that they are good as plain numbers. shared is seen by forked children.
	arena  []byte
	used   int
	shared *report
	child  int // pid of the last one that was forked
	clean  []func()
}

// NewTarget reads what the attempts need to know. born is what TakeBirth saw first thing in main.
func NewTarget(b Bait, born Birth) (*Target, error) {
	t := &Target{Bait: b, Born: born}
	if t.Workspace == "" {
		t.Workspace, _ = os.Getwd()
	}
	if t.State == "" {
		t.State = os.Getenv("HOME")
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("read /proc/self/exe: %w", err)
	}
	t.Self = self
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("open own image: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err != nil {
				return nil, fmt.Errorf("read PT_INTERP: %w", err)
			}
			t.Dynamic, t.Loader = true, strings.TrimRight(string(name), "\x00")
		}
	}
	const arenaBytes = 1 << 20
	if t.arena, err = unix.Mmap(-1, 0, arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_32BIT); err != nil {
		return nil, fmt.Errorf("mmap arena: %w", err)
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mmap shared page: %w", err)
	}
	t.shared = (*report)(unsafe.Pointer(&page[0]))
	return t, nil
}

func (t *Target) begin() { t.used = 0 }

// end undoes what the attempt left, last first.
func (t *Target) end() {
	for i := len(t.clean) - 1; i >= 0; i-- {
		t.clean[i]()
	}
	t.clean = nil
}

func (t *Target) later(f func()) { t.clean = append(t.clean, f) }

// bytes puts b into the arena, aligned, and returns its address.
func (t *Target) bytes(b []byte) uintptr {
	at := (t.used + 15) &^ 15
	copy(t.arena[at:], b)
	t.used = at + len(b)
	return uintptr(unsafe.Pointer(&t.arena[at]))
}

func (t *Target) str(s string) uintptr { return t.bytes(append([]byte(s), 0)) }

// words puts numbers of the given size (4 or 8 bytes) into the arena.
func (t *Target) words(size int, w ...uint64) uintptr {
	b := make([]byte, 0, len(w)*size)
	for _, v := range w {
		for i := 0; i < size; i++ {
			b = append(b, byte(v>>(8*i)))
		}
	}
	return t.bytes(b)
}

// argv puts an argument vector of pointers of the given size into the arena.
func (t *Target) argv(size int, args ...string) uintptr {
	w := make([]uint64, 0, len(args)+1)
	for _, a := range args {
		w = append(w, uint64(t.str(a)))
	}
	return t.words(size, append(w, 0)...)
}

// scratch is a fresh name in the workspace, removed when the attempt ends.
func (t *Target) scratch(name string) string { return t.scratchIn(t.Workspace, name) }

func (t *Target) scratchIn(dir, name string) string {
	p := filepath.Join(dir, fmt.Sprintf(".sharness-probe-%d-%s", os.Getpid(), name))
	t.later(func() { os.RemoveAll(p) })
	return p
}

// put writes a file for the attempt and removes it afterwards.
func (t *Target) put(path string, content []byte, mode fs.FileMode) error {
	t.later(func() { os.Remove(path) })
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// nsInode is the inode of one of the caller's own namespaces, zero when it cannot be read.
func nsInode(kind string) uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/"+kind, &st) != nil {
		return 0
	}
	return st.Ino
}

// privatePID tells whether pid 1 may be touched: only in a pid namespace that is certainly not the host's.
func (t *Target) privatePID() bool {
	own := nsInode("pid")
	return t.HostPIDNS != 0 && own != 0 && own != t.HostPIDNS
}

// ours tells whether pid is the probe or a descendant of it: a number of the host may name one inside.
func ours(pid int) bool {
	for range 64 {
		if pid == os.Getpid() {
			return true
		}
		if pid <= 1 {
			return false
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		rest := string(raw[strings.LastIndexByte(string(raw), ')')+1:])
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	return false
}
