package launcher

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// netspaces makes the network namespaces of commands, and gives one that nothing has used to the next command. Making
// and destroying one costs as much as a shell; what a command leaves in one, a connection that lingers on a port or a
// count of packets, no other may meet. So it is asked, not believed: one goes on only if it reads like a new one.
//
// They are made by one thread, which ends with the session: a thread that was moved must not run anything else.
type netspaces struct {
	work chan func()

	mu    sync.Mutex
	fresh string // what a new one says of itself
	clean []*netspace
}

// netspace is one namespace, and the files in which it says what is, or was, in it.
type netspace struct {
	*os.File
	says []*os.File
}

func (ns *netspace) Close() {
	ns.File.Close()
	closeFiles(ns.says)
}

func newNetspaces() *netspaces {
	n := &netspaces{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked
		for fn := range n.work {
			fn()
		}
	}()
	return n
}

// take returns a namespace with loopback alone, in which nothing has happened.
func (n *netspaces) take() (*netspace, error) {
	n.mu.Lock()
	if last := len(n.clean) - 1; last >= 0 {
		ns := n.clean[last]
		n.clean = n.clean[:last]
		n.mu.Unlock()
		return ns, nil
	}
	n.mu.Unlock()
	var ns *netspace
	var err error
	done := make(chan struct{})
	n.work <- func() { defer close(done); ns, err = newNetspace() }
	<-done
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fresh == "" {
		n.fresh, err = ns.state()
	}
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return ns, nil
}

// newNetspace leaves the calling thread in the namespace.
func newNetspace() (*netspace, error) {
	f, _, err := makeNetNS(nil)
	if err != nil {
		return nil, err
	}
	ns := &netspace{File: f}
	for _, name := range netFiles {
		f, err := os.Open("/proc/thread-self/net/" + name)
		if err != nil {
			ns.Close()
			return nil, err
		}
		ns.says = append(ns.says, f)
	}
	return ns, nil
}

// give takes a namespace back whose command has ended, with every process that was in it.
func (n *netspaces) give(ns *netspace) {
	now, err := ns.state()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && now == n.fresh {
		n.clean = append(n.clean, ns)
		return
	}
	ns.Close()
}

// trim lets go of those that only many commands at once need.
func (n *netspaces) trim() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.clean) > warmSlots {
		last := len(n.clean) - 1
		n.clean[last].Close()
		n.clean = n.clean[:last]
	}
}

// close lets go of what waits.
func (n *netspaces) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ns := range n.clean {
		ns.Close()
	}
	n.clean = nil
	close(n.work)
}

// netFiles are what the kernel says of what is, or was, in a network namespace: packets by device, without which no
// connection can linger, and sockets.
var netFiles = []string{"dev", "sockstat"}

// hostwide are the numbers in sockstat, by the words before them, that are of the whole machine.
var hostwide = []string{"orphan", "alloc", "mem", "memory"}

// withoutHostwide writes the words of sockstat but for those numbers.
func withoutHostwide(b *strings.Builder, data []byte) {
	skip := false
	for word := range bytes.FieldsSeq(data) {
		switch {
		case skip:
			skip = false
		case slices.Contains(hostwide, string(word)):
			skip = true
		default:
			b.Write(word)
			b.WriteByte(' ')
		}
	}
}

// state is all that a namespace says of itself: a file of /proc/PID/net is of the namespace in which it was opened.
func (ns *netspace) state() (string, error) {
	var b strings.Builder
	buf := make([]byte, 4096)
	for i, name := range netFiles {
		n, err := unix.Pread(int(ns.says[i].Fd()), buf, 0)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		if name == "sockstat" {
			withoutHostwide(&b, buf[:n])
		} else {
			b.Write(buf[:n])
		}
	}
	return b.String(), nil
}
