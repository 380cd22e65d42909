package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

func TestDaemonsGetOneEntryEach(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		want []string
	}{
		{Journald, []string{"MESSAGE\n", "SHARNESS_TYPE\n\x0b\x00\x00\x00\x00\x00\x00\x00exec.denied\n", "PRIORITY\n\x01\x00\x00\x00\x00\x00\x00\x004\n"}},
		{Syslog, []string{"<84>", "sharness[", `"type":"exec.denied"`}},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "socket")
			server, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(server)
			if err := unix.Bind(server, &unix.SockaddrUnix{Name: path}); err != nil {
				t.Fatal(err)
			}
			fd, err := dial(path)
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, []string{"supervisor"}, Opened{Spec{Kind: c.kind}, os.NewFile(uintptr(fd), "daemon")})
			r.run()
			e := denied("/bin/sh\nPRIORITY=0")
			r.senders[0].Send(e)
			buf := make([]byte, 1<<16)
			n, _, err := unix.Recvfrom(server, buf, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(string(buf[:n]), want) {
					t.Errorf("got %q, want %q in it", buf[:n], want)
				}
			}
			if strings.Contains(string(buf[:n]), "\nPRIORITY=0") {
				t.Errorf("got %q: a name made a field of its own", buf[:n])
			}
			r.end()
		})
	}
}

// daemon is the receiving end of a log daemon at path.
func daemon(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	return fd
}

func dialed(t *testing.T, path string) Opened {
	t.Helper()
	fd, err := dial(path)
	if err != nil {
		t.Fatal(err)
	}
	return Opened{Spec{Kind: Syslog}, os.NewFile(uintptr(fd), "daemon")}
}

// numbers reads lines of a daemon until n came, and returns the seq of each.
func numbers(t *testing.T, fd, n int, pause time.Duration) []uint64 {
	t.Helper()
	var out []uint64
	buf := make([]byte, 1<<16)
	for len(out) < n {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			t.Fatal(err)
		}
		k, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			t.Fatalf("after %d lines of %d: %v", len(out), n, err)
		}
		_, line, _ := strings.Cut(string(buf[:k]), "]: ")
		e, err := event.Decode([]byte(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, e.Seq)
		time.Sleep(pause)
	}
	return out
}

// The socket of a log daemon holds ten datagrams, and a start alone writes more lines than that in a millisecond.
func TestBusyDaemonGetsEveryLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	server := daemon(t, path)
	defer unix.Close(server)
	r := newRig(t, []string{"supervisor"}, dialed(t, path))
	r.run()
	const n = 200
	for i := range n {
		r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: fmt.Sprint(i)})
	}
	r.hangUp()
	for i, seq := range numbers(t, server, n+1, time.Millisecond) { // and session.end
		if seq != uint64(i+1) {
			t.Fatalf("line %d: got seq %d", i+1, seq)
		}
	}
	r.wait()
}

func TestDaemonThatTakesNothingHoldsNothingUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	server := daemon(t, path)
	defer unix.Close(server)
	r := newRig(t, []string{"supervisor"}, dialed(t, path))
	r.run()
	for i := range 500 {
		r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: fmt.Sprint(i)})
	}
	r.hangUp()
	if err := r.ended(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v, want that lines are missing", err)
	}
}

func TestDaemonThatWasStartedAgainGetsWhatFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	server := daemon(t, path)
	r := newRig(t, []string{"supervisor"}, dialed(t, path))
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	r.config.Control = dup(t, theirs)
	// The supervisor's part.
	go Requests(ours, func() {
		if fd, err := dial(path); err == nil {
			f := os.NewFile(uintptr(fd), "daemon")
			Replace(ours, 0, f)
			f.Close()
		}
	}, nil)
	r.run()
	r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: "before"})
	numbers(t, server, 1, 0)
	unix.Close(server)
	r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: "meanwhile"})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	server = daemon(t, path)
	defer unix.Close(server)
	r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: "after"})
	if got := numbers(t, server, 2, 0); got[0] != 2 || got[1] != 3 {
		t.Errorf("got %v, want 2 and 3", got)
	}
	r.end()
}
