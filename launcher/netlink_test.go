package launcher

import (
	"os"
	"strings"
	"testing"
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
	if _, many := r.waiting(os.Getpid()); many {
		t.Error("this process's own network has too many sockets")
	}
	if total, many := r.waiting(1 << 30); total != 0 || many {
		t.Errorf("nobody's: %d, %v", total, many)
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
