package kerneltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main(m, map[string]Func{
		"double": func(input json.RawMessage) (any, error) {
			var n int
			err := json.Unmarshal(input, &n)
			return 2 * n, err
		},
		"fail": func(json.RawMessage) (any, error) { return nil, errors.New("on purpose") },
		"die":  func(json.RawMessage) (any, error) { return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL) },
	})
}

func TestChildRepliesToItsInput(t *testing.T) {
	var got int
	Child{Name: "double", Input: 21, Reply: &got}.Run(t)
	if got != 42 {
		t.Errorf("reply: want 42, got %d", got)
	}
}

func TestChildThatFailsIsAnError(t *testing.T) {
	for name, want := range map[string]string{"fail": "exit status 1", "die": "signal: killed", "absent": "exit status 1"} {
		stderr, err := Child{Name: name}.Start(t)
		if err == nil || err.Error() != want {
			t.Errorf("child %s: want %q, got %v\n%s", name, want, err, stderr)
		}
	}
}

func TestKernelsCompareByNumberNotText(t *testing.T) {
	if (Kernel{6, 12}).Before(Kernel{6, 7}) || !(Kernel{6, 18}).Before(Kernel{7, 0}) {
		t.Error("want 6.12 after 6.7 and 6.18 before 7.0")
	}
}

// recorder takes the place of the test that a helper of this package skips or fails.
type recorder struct {
	testing.TB
	cleanups []func()
	said     string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.said = "error: " + fmt.Sprintf(format, args...)
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.said = "fatal: " + fmt.Sprintf(format, args...)
}

// Skipf does not return to its caller, like the real one.
func (r *recorder) Skipf(format string, args ...any) {
	r.said = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// said is what f made of the test that it was given.
func said(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.said
}

func TestRequirementSkipsOnlyOnAnOlderKernel(t *testing.T) {
	running := Running(t)
	for name, c := range map[string]struct {
		since Kernel
		want  string
	}{
		"older kernel": {Kernel{running.Major + 1, 0}, "skip: "},
		"same release": {running, "fatal: "},
		"newer kernel": {Kernel{2, 6}, "fatal: "},
	} {
		got := said(t, func(tb testing.TB) { RequireSysctl(tb, "no/such/file", c.since) })
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: want %q, got %q", name, c.want, got)
		}
	}
}

func TestRequirementIsSilentWhenMet(t *testing.T) {
	if got := said(t, func(tb testing.TB) { RequireSysctl(tb, "kernel/ostype", Kernel{99, 0}) }); got != "" {
		t.Errorf("want nothing said, got %q", got)
	}
	RequireLandlock(t, 1)
	RequireExecveCheck(t)
}

func TestNoLeaksFindsAProcessLeftBehind(t *testing.T) {
	RequireRoot(t)
	t.Setenv(PaceEnv, "1") // it is to be found: there is nothing to wait for
	r := &recorder{TB: t}
	NoLeaks(r)
	cmd := exec.Command("/bin/sleep", "10")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: firstUID + 999999, Gid: firstUID + 999999},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.cleanups[0]()
	cmd.Process.Kill()
	cmd.Wait()
	if !strings.Contains(r.said, "uid 1900999999, \"sleep\"") {
		t.Errorf("want the process named, got %q", r.said)
	}
}

func TestPaceLengthensWhatIsWaitedFor(t *testing.T) {
	for text, want := range map[string]string{"1": "2s", "14": "28s", "": "fatal", "0": "fatal", "fast": "fatal"} {
		t.Setenv(PaceEnv, text)
		var d time.Duration
		failed := said(t, func(tb testing.TB) { d = Within(tb, 2*time.Second) })
		if got := d.String(); failed == "" && got != want || failed != "" && !strings.HasPrefix(failed, want) {
			t.Errorf("%s=%q: got %s %s, want %s", PaceEnv, text, got, failed, want)
		}
	}
}
