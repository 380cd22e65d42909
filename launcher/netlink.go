package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// What waits in a netlink socket is memory that the kernel charges to no group: 8 MiB each where net.core.rmem_max is 4 MiB,
// and a process may have as many sockets as files. getifaddrs needs such sockets, so they are counted and not refused.
const (
	netlinkFew  = 1 << 20 // is nobody's concern
	netlinkMost = 1 << 20 // of the list is read: some 10,000 sockets, and who has more has too many
)

// netlinkReader says what waits in the netlink sockets of network namespaces. Its memory is for one reader at a time.
type netlinkReader struct {
	buf [16 << 10]byte
}

// waiting is how many bytes wait in those of a process's network namespace, and whether there are more than are counted. What
// has ended has none; an error says that it could not be asked.
func (r *netlinkReader) waiting(pid int) (total uint64, many bool, err error) {
	name := fmt.Sprintf("/proc/%d/net/netlink", pid)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if gone(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	for read, kept := 0, 0; ; {
		n, err := unix.Read(fd, r.buf[kept:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil && !gone(err):
			return total, false, fmt.Errorf("read %s: %w", name, err)
		case err != nil || n == 0:
			return total, false, nil
		}
		if read += n; read > netlinkMost {
			return total, true, nil
		}
		lines := r.buf[:kept+n]
		end := bytes.LastIndexByte(lines, '\n') + 1
		total += netlinkSum(lines[:end])
		kept = copy(r.buf[:], lines[end:])
		if kept == len(r.buf) {
			return total, true, nil // no line is so long
		}
	}
}

// gone says whether an errno is that of a file below /proc whose process has ended.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// netlinkSum adds up whole lines: sk, Eth, Pid, Groups, Rmem, Wmem and so on, after one that names them.
func netlinkSum(lines []byte) (total uint64) {
	for line := range bytes.Lines(lines) {
		f := bytes.Fields(line)
		if len(f) < 6 {
			continue
		}
		for _, n := range f[4:6] {
			v, _ := strconv.ParseUint(string(n), 10, 64) // the names are none
			total += v
		}
	}
	return total
}

// inUse is what a group is charged for and could not give back: without the cache of files.
func (c *cgroup) inUse() uint64 {
	dir, usage, prefix := c.dirs[0], "memory.current", ""
	if c.v2 == nil {
		dir, usage, prefix = c.dirs[1], "memory.usage_in_bytes", "total_"
	}
	// By their names: what is kept open is for who ends the command.
	data, err := readGroup(dir + "/" + usage)
	if err != nil {
		return 0 // removed
	}
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	stat, err := readGroup(dir + "/memory.stat")
	if err != nil {
		return n
	}
	cache := counted(stat, prefix+"inactive_file") + counted(stat, prefix+"active_file")
	return n - min(n, cache)
}
