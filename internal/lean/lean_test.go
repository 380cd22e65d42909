package lean

import (
	"os"
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
