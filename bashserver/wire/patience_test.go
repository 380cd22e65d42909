package wire

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSendDropsAPeerThatDoesNotRead(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	deaf := os.NewFile(uintptr(fds[1]), "deaf")
	defer deaf.Close()
	rc, err := NewRecordConn(os.NewFile(uintptr(fds[0]), "ours"))
	if err != nil {
		t.Fatal(err)
	}
	rc.patience = 50 * time.Millisecond
	for range 100000 {
		if err = rc.Send(Record{Type: RecEnded, ID: 1}); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v, want the deadline", err)
	}
	if _, _, err := rc.Recv(); err == nil {
		t.Errorf("got no error from Recv, want the connection closed")
	}
}
