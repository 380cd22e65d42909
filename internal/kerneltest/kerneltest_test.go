package kerneltest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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

// recorder takes the place of the test that NoLeaks fails.
type recorder struct {
	testing.TB
	cleanups []func()
	failed   string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(_ string, args ...any) { r.failed, _ = args[0].(string) }

func TestNoLeaksFindsAProcessLeftBehind(t *testing.T) {
	RequireRoot(t)
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
	if !strings.Contains(r.failed, "uid 1900999999, \"sleep\"") {
		t.Errorf("want the process named, got %q", r.failed)
	}
}
