package wire

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pair gives both ends of a socketpair as files.
func pair(t *testing.T, kind int) (*os.File, *os.File) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(p[0]), "a"), os.NewFile(uintptr(p[1]), "b")
}

func recordPair(t *testing.T) (*RecordConn, *RecordConn) {
	t.Helper()
	a, b := pair(t, unix.SOCK_SEQPACKET)
	x, err := NewRecordConn(a, 0)
	if err != nil {
		t.Fatal(err)
	}
	y, err := NewRecordConn(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// openFDs counts this process's descriptors: a leak shows as a difference.
func openFDs(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func TestRecordTravelsWithDescriptors(t *testing.T) {
	a, b := recordPair(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	want := Record{Type: RecStart, ID: 1 << 63, A: FlagTerminal, B: 2, C: 3}
	n := int(null.Fd())
	if err := a.Send(want, n, n, n, n); err != nil {
		t.Fatal(err)
	}
	got, fds, err := b.Recv()
	if err != nil || got != want || len(fds) != 4 {
		t.Fatalf("got %+v with %d descriptors, %v", got, len(fds), err)
	}
	for _, fd := range fds {
		if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %#x, %v: would leak into a child", fd, fl, err)
		}
	}
	CloseAll(fds)
	a.Close()
	if _, _, err := b.Recv(); err != io.EOF {
		t.Errorf("after close: got %v, want EOF", err)
	}
}

func TestRecordWithWrongDescriptorsIsRefusedAndClosed(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, tc := range map[string]struct {
		rec  Record
		fds  int
		size int
	}{
		"none with conn":     {Record{Type: RecConn}, 0, RecordBytes},
		"two with conn":      {Record{Type: RecConn}, 2, RecordBytes},
		"one with ended":     {Record{Type: RecEnded}, 1, RecordBytes},
		"five with start":    {Record{Type: RecStart}, 5, RecordBytes},
		"hundred with start": {Record{Type: RecStart}, 100, RecordBytes},
		"unknown type":       {Record{Type: 99}, 2, RecordBytes},
		"short":              {Record{Type: RecDone}, 1, RecordBytes - 1},
		"long":               {Record{Type: RecDone}, 0, RecordBytes + 8},
	} {
		a, b := recordPair(t)
		before := openFDs(t)
		var fds []int
		for range tc.fds {
			fds = append(fds, int(null.Fd()))
		}
		raw := tc.rec.Encode()
		if err := SendRights(a.c, append(raw[:], make([]byte, 8)...)[:tc.size], fds...); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Recv(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %v, want a protocol error", name, err)
		}
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors before, %d after", name, before, after)
		}
	}
}

func TestClientDescriptorsComeOnlyWithTheFirstByte(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	hello := AppendFrame(nil, Frame{Hello, []byte{1, 0}})
	for name, tc := range map[string]struct {
		first, second int // descriptors with the first and the second message
		ok            bool
	}{
		"three then none": {3, 0, true},
		"none":            {0, 0, false},
		"two":             {2, 0, false},
		"four":            {4, 0, false},
		"most":            {253, 0, false},
		"some later":      {3, 1, false},
		"many later":      {3, 253, false},
	} {
		before := openFDs(t)
		a, b := pair(t, unix.SOCK_STREAM)
		client, err := unixConn(a)
		if err != nil {
			t.Fatal(err)
		}
		server, err := NewFrameConn(b)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range []int{tc.first, tc.second} {
			var fds []int
			for range n {
				fds = append(fds, int(null.Fd()))
			}
			if err := SendRights(client, hello, fds...); err != nil {
				t.Fatalf("%s: message %d: %v", name, i, err)
			}
		}
		_, err = server.ReadFrame()
		if err == nil {
			_, err = server.ReadFrame()
		}
		if tc.ok != (err == nil) || (err != nil && !errors.Is(err, ErrProtocol)) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
		client.Close()
		if after := openFDs(t); after != before {
			t.Errorf("%s: %d descriptors before, %d after", name, before, after)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range []Record{{Type: RecConn, ID: 1}, {Type: RecEnded, ID: 7, A: 1, B: 9, C: LimitMemory}, {Type: 99}} {
		b := r.Encode()
		f.Add(b[:])
	}
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("foreign error %v", err)
			}
			return
		}
		if again := r.Encode(); string(again[:]) != string(b) {
			t.Fatalf("decodes but encodes differently: %+v", r)
		}
	})
}
