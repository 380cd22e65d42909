package launcher

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// netspaces makes the network namespaces of commands, and gives one that nothing has used to the next command. Making
// and destroying one costs as much as a shell; what a command leaves in one, a connection that lingers on a port or a
// count of packets, no other may meet. So it is asked, not believed: one goes on only if it reads like a new one.
//
// All of it is done by one thread, which ends with the session: a thread that was moved must not run anything else.
type netspaces struct {
	work  chan func()
	fresh string // what a new one says of itself
	clean []*os.File
}

// maxClean bounds the namespaces that wait for a command.
const maxClean = 16

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

func (n *netspaces) do(fn func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); fn() }
	<-done
}

// take returns a namespace with loopback alone, in which nothing has happened.
func (n *netspaces) take() (ns *os.File, err error) {
	n.do(func() {
		if last := len(n.clean) - 1; last >= 0 {
			ns, n.clean = n.clean[last], n.clean[:last]
			return
		}
		if ns, _, err = makeNetNS(nil); err != nil {
			return
		}
		if n.fresh == "" {
			n.fresh, err = netState()
		}
		if err != nil {
			ns.Close()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return ns, nil
}

// give takes a namespace back whose command has ended, with every process that was in it.
func (n *netspaces) give(ns *os.File) {
	n.do(func() {
		if len(n.clean) < maxClean && unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET) == nil {
			if now, err := netState(); err == nil && now == n.fresh {
				n.clean = append(n.clean, ns)
				return
			}
		}
		ns.Close()
	})
}

// close lets go of what waits.
func (n *netspaces) close() {
	n.do(func() {
		for _, ns := range n.clean {
			ns.Close()
		}
		n.clean = nil
	})
	close(n.work)
}

// netFiles are what the kernel says of what is, or was, in a network namespace: packets by device, without which no
// connection can linger, and sockets.
var netFiles = []string{"dev", "sockstat"}

// hostwide are the numbers in sockstat that are of the whole machine.
var hostwide = regexp.MustCompile(`(orphan|alloc|mem|memory) \d+`)

// netState is all that the namespace of the calling thread says of itself.
func netState() (string, error) {
	var b strings.Builder
	for _, name := range netFiles {
		data, err := readGroup("/proc/thread-self/net/" + name)
		if err != nil {
			return "", err
		}
		if name == "sockstat" {
			data = hostwide.ReplaceAll(data, nil)
		}
		b.Write(data)
	}
	return b.String(), nil
}
