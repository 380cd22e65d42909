package protect

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A watcher that ends with an order unread resets the socket. What it said before is read all the same.
func TestLastRecordOfAWatcherThatDidNotReadArrives(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	last := Record{Swept, 1, 2, 3}
	err = errors.Join(Record{Type: Sweep}.Send(ours), last.Send(theirs), theirs.Close())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Receive(ours); err != nil || got != last {
		t.Errorf("got %+v, %v, want %+v", got, err, last)
	}
	if _, err := Receive(ours); !errors.Is(err, io.EOF) {
		t.Errorf("after it: %v, want io.EOF", err)
	}
}
