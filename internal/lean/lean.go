// Package lean gives memory back that only the start of a long-lived process needed: free pages of the heap, and pages of
// its own program, which lie in the page cache anyway and are mapped again when they are used.
package lean

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Program is where the program of this process is mapped and cannot be written, and the code of its libraries, as far as it
// all is in the file: what the loader writes and then makes read-only (RELRO) would be gone. It is read before a process
// gives up its view of /proc.
type Program []struct{ from, to uintptr }

// Mapped reads the mappings of this process's program. Nothing can be said without /proc: then there is nothing to give back.
func Mapped() Program {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	data, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return nil
	}
	return parse(data, self)
}

// parse reads smaps (proc(5)): a line for each mapping, and then what is known of it.
func parse(data []byte, self string) (p Program) {
	var m struct{ from, to uintptr }
	candidate := false
	for line := range bytes.Lines(data) {
		var from, to, offset uintptr
		var perms, dev, path string
		var inode uint64
		n, _ := fmt.Sscanf(string(line), "%x-%x %s %x %s %d %s", &from, &to, &perms, &offset, &dev, &inode, &path)
		switch {
		case n >= 6:
			m.from, m.to = from, to
			candidate = n == 7 && inode > 0 && (path == self && strings.HasPrefix(perms, "r-") || perms == "r-xp") && perms[3] == 'p'
		case candidate && bytes.HasPrefix(line, []byte("Anonymous:")): // pages that are this process's own, and not the file's
			if f := bytes.Fields(line); len(f) == 3 && string(f[1]) == "0" {
				p = append(p, m)
			}
			candidate = false
		}
	}
	return p
}

// Give gives back what can be had again. It stops the world for a moment.
func (p Program) Give() {
	debug.FreeOSMemory()
	for _, m := range p {
		// An error leaves the pages where they are.
		_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

// quiet is how long a process has nothing to do before it gives back. What comes next pays some hundred page faults for
// it, so that it must not be on the way from one command to the next.
const quiet = 10 * time.Second

// Lull gives back in the pauses of a process. Its methods may be called by many at once.
type Lull struct{ timer *time.Timer }

// NewLull is for a process that has nothing to do yet. What it keeps for what comes next, more gives back.
func NewLull(p Program, more ...func()) *Lull {
	return &Lull{time.AfterFunc(quiet, func() {
		for _, give := range more {
			give()
		}
		p.Give()
	})}
}

// Begin says that there is nothing to do.
func (l *Lull) Begin() { l.timer.Reset(quiet) }

// End says that there is something to do.
func (l *Lull) End() { l.timer.Stop() }
