package launcher

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetlinkMemoryIsReadAsTheKernelWritesIt(t *testing.T) {
	const list = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n" +
		"0000000061965937 0   0          00000000 0        0        0     2        0        4       \n" +
		"00000000329635ce 0   1234       00000000 8388608  4352     0     2        5        1431    \n"
	if got := netlinkSum([]byte(list)); got != 8388608+4352 {
		t.Errorf("got %d", got)
	}
	for _, odd := range []string{"", "\n", "a b c\n", strings.Repeat("x ", 9) + "\n"} {
		if got := netlinkSum([]byte(odd)); got != 0 {
			t.Errorf("%q: got %d", odd, got)
		}
	}
	var r netlinkReader
	if _, many, err := r.waiting(os.Getpid()); many || err != nil {
		t.Errorf("this process's own network: many %v, %v", many, err)
	}
	if total, many, err := r.waiting(1 << 30); total != 0 || many || err != nil {
		t.Errorf("nobody's: %d, %v, %v", total, many, err)
	}
}

// Without descriptors nothing can be opened. A session whose memory cannot be looked at must not go on as if there were none.
func TestSessionEndsWhenNetlinkMemoryCannotBeLookedAt(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var reader netlinkReader
	_, _, err := reader.waiting(os.Getpid())
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Fatalf("got %v, want EMFILE", err)
	}
	r := &run{failed: make(chan struct{})}
	p := &pulse{r: r}
	for range maxBlind - 1 {
		p.look(err)
	}
	p.look(nil) // once is enough to go on
	for range maxBlind - 1 {
		p.look(err)
	}
	if r.failure() != nil {
		t.Fatalf("ended too early: %v", r.failure())
	}
	if p.look(err); !errors.Is(r.failure(), unix.EMFILE) {
		t.Errorf("got %v, want the session ended, and why", r.failure())
	}
}

func TestChangeOfTheCorePatternIsSaidOnce(t *testing.T) {
	var said []string
	p := &pulse{r: &run{o: Options{Notice: func(s string) { said = append(said, s) }}}, pattern: new("what it never is")}
	p.corePattern()
	p.corePattern()
	if len(said) != 1 || !strings.Contains(said[0], "kernel.core_pattern was changed") {
		t.Errorf("got %q", said)
	}
}
