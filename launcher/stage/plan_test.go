package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func memfd(t *testing.T, data []byte) int {
	t.Helper()
	fd, err := SealedMemfd("test", data)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestSealedMemfdCannotBeChanged(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	fd := memfd(t, want)
	defer unix.Close(fd)
	for name, err := range map[string]error{
		"write":    errOnly(unix.Pwrite(fd, []byte("x"), 0)),
		"append":   errOnly(unix.Pwrite(fd, []byte("x"), int64(len(want)))),
		"shrink":   unix.Ftruncate(fd, 1),
		"grow":     unix.Ftruncate(fd, int64(len(want))+1),
		"punch":    unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096),
		"seal":     errOnly(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)),
		"map":      mapWritable(fd),
		"reopened": reopened(fd),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: want EPERM, got %v", name, err)
		}
	}
	got := make([]byte, len(want)+1)
	if n, err := unix.Pread(fd, got, 0); err != nil || !bytes.Equal(got[:n], want) {
		t.Errorf("want the %d bytes that were given, got %d, %v", len(want), n, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("want it close-on-exec, got flags %d, %v", flags, err)
	}
}

func errOnly[T any](_ T, err error) error { return err }

func mapWritable(fd int) error {
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		unix.Munmap(m)
	}
	return err
}

// reopened writes through a second open file of the same memfd, as a process that can see it in /proc could.
func reopened(fd int) error {
	f, err := os.OpenFile(filepath.Join("/proc/self/fd", itoa(fd)), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write([]byte("x"))
	return err
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestPlanIsReadWholeFromTheStart(t *testing.T) {
	want := &Plan{UID: 7, Stdio: [3]int{StdioNull, 5, StdioTerminal},
		Protected: &Protected{Root: "/w", Entries: []ProtectedEntry{{Rel: []byte("a\xff"), ReadOnly: true}}}, Seccomp: [][]byte{{1, 2, 3, 4, 5, 6, 7, 8}}}
	fd, err := encodePlan(want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		t.Fatal(err)
	}
	got, err := readPlan(fd)
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != 7 || got.Stdio != want.Stdio || !slices.EqualFunc(got.Seccomp, want.Seccomp, bytes.Equal) {
		t.Errorf("want %+v, got %+v", want, got)
	}
	if got.Protected != nil {
		t.Errorf("want the view left out of what the second stage gets, got %+v", got.Protected)
	}
}

func TestPlanIsReadStrictly(t *testing.T) {
	for name, data := range map[string]string{
		"empty":           "",
		"cut off":         `{"kind":"command"`,
		"no object":       `[]`,
		"unknown key":     `{"kind":"command","uids":1}`,
		"deep unknown":    `{"landlock":{"abi":7,"no_such_right":true}}`,
		"id out of range": `{"uid":4294967296}`,
		"negative id":     `{"gid":-1}`,
		"wrong type":      `{"request":"3"}`,
		"second document": `{"kind":"command"}{"uid":0}`,
		"trailing bytes":  `{"kind":"command"} x`,
	} {
		p, err := readPlan(memfd(t, []byte(data)))
		if err == nil || !strings.HasPrefix(err.Error(), "plan: ") {
			t.Errorf("%s: want an error that names the plan, got %+v, %v", name, p, err)
		}
	}
	if _, err := readPlan(1 << 20); !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: want EBADF, got %v", err)
	}
}

func TestLimitKeepsWhatTheHostBoundsTighter(t *testing.T) {
	// A resource that this process can do without.
	const resource = unix.RLIMIT_MSGQUEUE
	var before unix.Rlimit
	if err := unix.Getrlimit(resource, &before); err != nil {
		t.Fatal(err)
	}
	if before.Max < 1000 {
		t.Fatalf("RLIMIT_MSGQUEUE is %d: too low to try anything", before.Max)
	}
	for _, c := range []struct {
		name   string
		r      Rlimit
		want   unix.Rlimit
		refuse bool
	}{
		{name: "lower", r: Rlimit{Soft: 500, Hard: 900}, want: unix.Rlimit{Cur: 500, Max: 900}},
		{name: "soft above hard of the host", r: Rlimit{Soft: 5000, Hard: 5000}, want: unix.Rlimit{Cur: 900, Max: 900}},
		{name: "hard above", r: Rlimit{Soft: 100, Hard: 5000}, want: unix.Rlimit{Cur: 100, Max: 900}},
		{name: "exact and lower", r: Rlimit{Soft: 50, Hard: 800, Exact: true}, want: unix.Rlimit{Cur: 50, Max: 800}},
		{name: "soft above hard", r: Rlimit{Soft: 800, Hard: 50}, want: unix.Rlimit{Cur: 50, Max: 800}, refuse: true},
	} {
		c.r.Resource = resource
		err := limit(c.r)
		if c.refuse != errors.Is(err, unix.EINVAL) || !c.refuse && err != nil {
			t.Errorf("%s: want refused %v, got %v", c.name, c.refuse, err)
		}
		var got unix.Rlimit
		if err := unix.Getrlimit(resource, &got); err != nil || got != c.want {
			t.Errorf("%s: want %+v, got %+v, %v", c.name, c.want, got, err)
		}
	}
	if err := limit(Rlimit{Resource: 99}); !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), "rlimit 99") {
		t.Errorf("no such resource: want EINVAL that names it, got %v", err)
	}
}
