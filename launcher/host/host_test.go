package host

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain answers as a probe of its own when it is started again as another user.
func TestMain(m *testing.M) {
	if os.Getenv("SHARNESS_TEST_PROBE") == "" {
		os.Exit(m.Run())
	}
	f, err := Probe(Options{})
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		panic(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
}

func TestProbeAsRootLeavesNoQuestionOpen(t *testing.T) {
	needRoot(t)
	f, err := Probe(Options{Paths: []string{"/", "/proc"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Namespaces) != 7 {
		t.Errorf("namespaces: got %v, want seven", f.Namespaces)
	}
	for name, trial := range f.Namespaces {
		if trial.State == Unknown {
			t.Errorf("namespace %s: got %+v, want an answer", name, trial)
		}
	}
	for name, trial := range map[string]Trial{
		"open_tree": f.OpenTree, "nosymfollow": f.MountNoSymfollow, "memfd_noexec": f.MemfdNoexec,
		"openat2": f.Openat2, "close_range": f.CloseRange, "pidfd": f.Pidfd, "execve_check": f.ExecveCheck,
		"cgroup_kill": f.CgroupKill, "idmap of /": f.Idmap[0].Trial,
	} {
		if trial.State == Unknown {
			t.Errorf("%s: got %+v, want an answer", name, trial)
		}
	}
	if got, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err != nil || f.CorePattern == nil || *f.CorePattern+"\n" != string(got) {
		t.Errorf("core_pattern: got %v, want %q", f.CorePattern, got)
	}
	// procfs forbids idmapped mounts in every kernel: a yes would mean that nothing was tried.
	if got := f.Idmap[1]; got.State != No || got.Fstype != "proc" {
		t.Errorf("idmap of /proc: got %+v, want no", got)
	}
}

func TestProbeAsUserSaysUnknownNotNo(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"SHARNESS_TEST_PROBE=1"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1900099999, Gid: 1900099999}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("probe as user: %v: %s", err, stderr.Bytes())
	}
	var user Features
	if err := json.Unmarshal(out, &user); err != nil {
		t.Fatal(err)
	}
	if user.UID != 1900099999 || len(user.Capabilities) != 0 {
		t.Fatalf("probed as uid %d with %v, want an ordinary user", user.UID, user.Capabilities)
	}
	if user.OpenTree.State != Unknown || user.Idmap[0].State != Unknown {
		t.Errorf("open_tree %+v, idmap %+v: want unknown", user.OpenTree, user.Idmap[0])
	}
	root, err := Probe(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if user.Landlock.ABI != root.Landlock.ABI || user.Seccomp.Filter != root.Seccomp.Filter {
		t.Errorf("landlock and seccomp need no privilege: got %+v %+v, want %+v %+v",
			user.Landlock, user.Seccomp, root.Landlock, root.Seccomp)
	}
}

func TestProbeLeavesTheHostAsItWas(t *testing.T) {
	needRoot(t)
	before := hostState(t)
	for range 3 {
		if _, err := Probe(Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if after := hostState(t); after != before {
		t.Errorf("host changed: got %q, want %q", after, before)
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("wait for any child: got %v, want ECHILD", err)
	}
}

func hostState(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return string(mounts) + readWord(memfdNoexecPath) + string(rune('0'+len(entries)))
}
