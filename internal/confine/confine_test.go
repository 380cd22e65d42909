package confine

import (
	"encoding/json"
	"os"
	"runtime"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// testUID is an id of nobody, from the range that sharness takes for commands.
const testUID = 1900190001

func TestMain(m *testing.M) {
	kerneltest.MainWithoutCgo(m, map[string]kerneltest.Func{
		"drop":     dropChild,
		"landlock": landlockChild,
		"seccomp":  seccompChild,
		"close":    closeChild,
		"self":     selfChild,
	})
}

// witnesses are threads that exist before the drop. A function that acted on its own thread alone would leave them as
// they were.
type witnesses []chan func()

func startWitnesses(n int) witnesses {
	w := make(witnesses, n)
	for i := range w {
		w[i] = make(chan func())
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			for f := range w[i] {
				f()
			}
		}()
		<-ready
	}
	return w
}

// each runs f on every witness and on the calling thread, and returns the answers.
func (w witnesses) each(f func() string) []string {
	answers := []string{f()}
	for _, c := range w {
		answer := make(chan string)
		c <- func() { answer <- f() }
		answers = append(answers, <-answer)
	}
	return answers
}

func wantAll(t *testing.T, what, want string, got []string) {
	t.Helper()
	if len(got) < 2 {
		t.Errorf("%s: want answers of several threads, got %q", what, got)
	}
	for i, g := range got {
		if g != want {
			t.Errorf("%s on thread %d: want %q, got %q", what, i, want, g)
		}
	}
}

// text makes an error comparable in JSON.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func decode[T any](input json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(input, &v)
	return v, err
}

func writeFile(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
