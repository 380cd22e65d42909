package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/resolve"
)

// execute runs one subcommand in this process and returns what it printed and its exit status.
func execute(t *testing.T, cmd *cobra.Command, args ...string) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var exit *exitError
	switch {
	case err == nil:
		return out.String(), 0, nil
	case errors.As(err, &exit):
		return out.String(), exit.code, err
	}
	return out.String(), 126, err // what run makes of it
}

func TestDoctorDecidesOnThisHost(t *testing.T) {
	kerneltest.RequireRoot(t)
	out, code, err := execute(t, newDoctorCmd(), "--workspace", t.TempDir())
	if code != 0 {
		t.Errorf("got %d, %v, want a host on which sessions start", code, err)
	}
	for _, want := range []string{"THIS HOST", "landlock", "LAYERS", "SIDE DOORS", "closed   exec-direct", "net-tenant", "A session would start here."} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	js, code, err := execute(t, newDoctorCmd(), "--json", "--workspace", t.TempDir())
	if code != 0 {
		t.Errorf("--json: got %d, %v", code, err)
	}
	var d diagnosis
	if err := json.Unmarshal([]byte(js), &d); err != nil || !d.Starts || d.Decision == nil || d.Features.Kernel == "" {
		t.Errorf("--json: got %v %+v", err, d)
	}
}

func TestDoctorRefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"no such workspace": {"--workspace", filepath.Join(dir, "gone")},
		"no such manifest":  {"-m", filepath.Join(dir, "gone.yaml")},
		"bad manifest":      {"-m", bad},
		"an argument":       {"what"},
	} {
		out, code, err := execute(t, newDoctorCmd(), args...)
		if code != 126 || out != "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %d, %q, %v, want 126 and one line", name, code, out, err)
		}
	}
}

func printed(t *testing.T, change func(*host.Features)) string {
	t.Helper()
	f, err := host.Probe(host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	change(f)
	decision, err := resolve.Resolve(nil, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &diagnosis{Features: f, Decision: decision, Starts: decision.Err() == nil}
	if f.UID != 0 {
		d.Decision = nil
	}
	var b bytes.Buffer
	if err := printDiagnosis(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDoctorNamesTheOpenDoorAndTheWayOut(t *testing.T) {
	out := printed(t, func(f *host.Features) { f.CloseRange = host.Trial{State: host.No, Cause: "ENOSYS"} })
	for _, want := range []string{"OPEN     inherit-fd", "close_range: ENOSYS", "needs Linux 5.9 or newer", "--allow-open inherit-fd", "No session would start here"} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

func TestDoctorSaysThatAUserCannotDecide(t *testing.T) {
	out := printed(t, func(f *host.Features) { f.UID, f.Capabilities = 1000, nil })
	if !strings.Contains(out, "Not run as root") || strings.Contains(out, "SIDE DOORS") {
		t.Errorf("got\n%s", out)
	}
}

func TestDoctorEscapesWhatItShows(t *testing.T) {
	out := printed(t, func(f *host.Features) { f.Idmap[0].Path = "/w\x1b[2J\u202e" })
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("got %q", out)
	}
}

// TestDoctorAndEventsAsTyped runs their scripts with the real command.
func TestDoctorAndEventsAsTyped(t *testing.T) {
	kerneltest.RequireRoot(t)
	testscript.Run(t, testscript.Params{Files: []string{"testdata/doctor.txtar", "testdata/events.txtar", "testdata/events_why.txtar", "testdata/status.txtar"}, RequireExplicitExec: true,
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"exit": scriptExit},
		Condition: scriptSince(t)})
}

// scriptSince gives scripts [since:6.3]: a kernel of that release or a newer one. What it should have is not asked of it.
func scriptSince(t *testing.T) func(string) (bool, error) {
	running := kerneltest.Running(t)
	return func(cond string) (bool, error) {
		var since kerneltest.Kernel
		_, err := fmt.Sscanf(cond, "since:%d.%d", &since.Major, &since.Minor)
		return !running.Before(since), err
	}
}
