package lean

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func resident(t *testing.T) (anon, file int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		n := 0
		for _, c := range value {
			if c >= '0' && c <= '9' {
				n = n*10 + int(c-'0')
			}
		}
		switch name {
		case "RssAnon":
			anon = n
		case "RssFile", "RssShmem": // the program of a test may lie on a tmpfs
			file += n
		}
	}
	return anon, file
}

//go:noinline
func waste(n int) byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b[n/2]
}

func TestWhatIsGivenBackIsNotResidentAndCanBeHadAgain(t *testing.T) {
	p := Mapped()
	if len(p) == 0 {
		t.Fatal("the program is mapped nowhere")
	}
	waste(64 << 20)
	_, before := resident(t)
	p.Give()
	anon, file := resident(t)
	if anon > 32<<10 {
		t.Errorf("%d kB of heap are resident, of which 64 MiB were garbage", anon)
	}
	if file >= before {
		t.Errorf("%d kB of the program are resident, as before", file)
	}
}

// What the loader wrote is in no file: of the program, here, the page that it made read-only.
func TestWhatTheLoaderWroteIsKept(t *testing.T) {
	const smaps = `00400000-00402000 r--p 00000000 fe:00 1425505                            /opt/p
Size:                  8 kB
Anonymous:             0 kB
00402000-0098a000 r-xp 00002000 fe:00 1425505                            /opt/p
Anonymous:             0 kB
00f7c000-00f7d000 r--p 00b7b000 fe:00 1425505                            /opt/p
Anonymous:             4 kB
00f7d000-00fb5000 rw-p 00b7c000 fe:00 1425505                            /opt/p
Anonymous:            80 kB
00fb5000-02fed000 rw-p 00000000 00:00 0 
Anonymous:             0 kB
7f18a92ef000-7f18a9315000 r--p 00000000 fe:00 1335                       /lib/libc.so.6
Anonymous:             0 kB
7f18a9315000-7f18a946a000 r-xp 00026000 fe:00 1335                       /lib/libc.so.6
Anonymous:             0 kB
7f18a9500000-7f18a9502000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
7f18a9502000-7f18a9504000 r-xp 00000000 fe:00 1336                       /lib/patched.so
Anonymous:             4 kB
`
	got := parse([]byte(smaps), "/opt/p")
	want := Program{{0x400000, 0x402000}, {0x402000, 0x98a000}, {0x7f18a9315000, 0x7f18a946a000}}
	if !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}
