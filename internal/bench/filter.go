package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/redact"
)

// chunk is what bashd reads at a time.
const chunk = 32 << 10

// searched is how much text is looked through for hits, timed how much of it is timed.
const (
	searched = 100 << 20
	timed    = 16 << 20
)

// filter measures the output filter by the processor's time of one thread, and counts what it takes out of text in which
// nobody meant to put a secret: Go's source, what the go command has downloaded, and logs.
func filter(rounds int) error {
	text, err := someText(searched)
	if err != nil {
		return err
	}
	part := sampled(text, timed)
	secrets := made()
	rows := []struct {
		name string
		set  *redact.Set
		text []byte
	}{
		{"values", redact.NewSet(secrets, redact.RulesNone), part},
		{"values and rules", redact.NewSet(secrets, redact.RulesDefault), part},
		{"values and all rules", redact.NewSet(secrets, redact.RulesAll), part},
		{"values, rules, bad", redact.NewSet(secrets, redact.RulesDefault), bad(timed / 16)},
		{"all rules, bad", redact.NewSet(secrets, redact.RulesAll), bad(timed / 16)},
	}
	fmt.Println(machine())
	fmt.Printf("\n%-22s %9s %9s   %d MiB in chunks of %d KiB, n=%d\n", "filter", "best", "median", timed>>20, chunk>>10, rounds)
	samples := make([][]time.Duration, len(rows))
	for round := range rounds + 1 {
		for i, r := range rows {
			took, err := pass(r.set, r.text)
			if err != nil {
				return err
			}
			if round > 0 {
				samples[i] = append(samples[i], took)
			}
		}
	}
	for i, r := range rows {
		fmt.Printf("%-22s %5.0f MB/s %5.0f MB/s\n", r.name, rate(r.text, quantile(samples[i], 0)), rate(r.text, quantile(samples[i], 0.5)))
	}
	return hits(text)
}

func rate(text []byte, d time.Duration) float64 {
	return 1e3 * float64(len(text)) / float64(d.Nanoseconds())
}

// pass sends a text through a new filter.
func pass(s *redact.Set, text []byte) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := s.Filter(io.Discard)
	before, err := spent()
	if err != nil {
		return 0, err
	}
	for piece := range pieces(text) {
		if _, err := f.Write(piece); err != nil {
			return 0, err
		}
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	after, err := spent()
	return after - before, err
}

func pieces(text []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			n := min(len(text), chunk)
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// spent is the processor's time of this thread: other programs on the machine do not count.
func spent() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// hits says what all rules take out of the text.
func hits(text []byte) error {
	f := redact.NewSet(nil, redact.RulesAll).Filter(io.Discard)
	for piece := range pieces(text) {
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	sum, vague := uint64(0), uint64(0)
	var names []string
	for _, c := range f.Counts() {
		names = append(names, fmt.Sprintf("%s %d", c.Name, c.N))
		if sum += c.N; c.Name == "generic-api-key" {
			vague = c.N
		}
	}
	fmt.Printf("\n%s\n", strings.Join(names, ", "))
	fmt.Printf("sharness filter: in %d MiB of source and logs %d marks, %d without generic-api-key\n", len(text)>>20, sum, sum-vague)
	return nil
}

// someText is source and logs of this machine, n bytes at most.
func someText(n int) ([]byte, error) {
	cache, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	folders := strings.Fields(string(cache))
	folders[0] = filepath.Join(folders[0], "src")
	var text []byte
	for i, folder := range append([]string{"/var/log"}, folders...) {
		upto := n
		if i == 1 {
			upto = n * 3 / 5 // the rest is of other authors
		}
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || len(text) >= upto {
				return nil //nolint:nilerr // what cannot be read is not measured
			}
			b, err := os.ReadFile(path)
			if err == nil && len(b) < 1<<20 && bytes.IndexByte(b, 0) < 0 {
				text = append(text, b[:min(len(b), upto-len(text))]...)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return text, nil
}

// sampled is n bytes of a text, from all over it.
func sampled(text []byte, n int) []byte {
	var out []byte
	const size = 256 << 10
	step := max(size, len(text)/(n/size))
	for i := 0; i+size <= len(text) && len(out) < n; i += step {
		out = append(out, text[i:i+size]...)
	}
	return out
}

// made are secrets such as a session has. They are put together here, so that nobody takes them for real ones.
func made() []redact.Secret {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"[r.IntN(56)]
		}
		return string(b)
	}
	return []redact.Secret{{Name: "API_KEY", Value: "sk-" + word(100)}, {Name: "TOKEN", Value: "gh" + "p_" + word(36)},
		{Name: "DATABASE_URL", Value: "postgres://user:" + word(16) + "@db.internal:5432/app"}, {Name: "PASSWORD", Value: word(12) + "!"}}
}

// bad is text that makes much look as if it were a secret: beginnings without an end.
func bad(n int) []byte {
	begin := []string{"-----BEGIN RSA " + "PRIVATE KEY-----\n", "api_key = \"", "curl -H \"Authorization: Bearer \\\n", "eyJhbGciOi", "glpat-", "ghp_0123", "token: aaaa.",
		"sk_live_", "facebook 1234", "postgres://", "AKIA", "https://hooks.", "password=========", "0123456789abcdef"}
	r := rand.New(rand.NewPCG(3, 4))
	var out []byte
	for len(out) < n {
		out = append(out, begin[r.IntN(len(begin))]...)
	}
	return out[:n]
}
