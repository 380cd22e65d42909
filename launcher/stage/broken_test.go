package stage

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
	"golang.org/x/sys/unix"
)

// Every plan here is wrong in one way. It must come home as one sentence that begins with the step, before anything of
// the target ran, and leave nothing.
func TestBrokenPlanComesHomeAsOneSentence(t *testing.T) {
	tooNew := func() int {
		abi, err := confine.LandlockABI()
		if err != nil {
			t.Fatal(err)
		}
		return abi + 1
	}
	mount := func(m Mount) func(*world) { return func(w *world) { w.plan.Mounts = append(w.plan.Mounts, m) } }
	for _, c := range []struct {
		name string
		edit func(w *world)
		want []string // the sentence begins with the first and holds the others
	}{
		{"hostname too long", func(w *world) { w.plan.Hostname = strings.Repeat("x", 65) }, []string{"hostname: ", "invalid argument"}},

		{"file below a file", func(w *world) { w.plan.Files = append(w.plan.Files, File{Path: "/etc/hosts/x"}) }, []string{"view: make folder of /etc/hosts/x", "not a directory"}},
		{"folder in the place of a file", func(w *world) { w.plan.Files = append(w.plan.Files, File{Path: "/etc/hosts/"}) }, []string{"view: make /etc/hosts/", "file exists"}},
		{"file in the place of a folder", func(w *world) { w.plan.Files = append(w.plan.Files, File{Path: "/etc"}) }, []string{"view: write /etc", "is a directory"}},
		{"link below a file", func(w *world) { w.plan.Links = append(w.plan.Links, Link{"/etc/hosts/x", "y"}) }, []string{"view: make folder of /etc/hosts/x", "not a directory"}},

		{"mount below a file", mount(Mount{Target: "/dev/null/x", Fstype: "tmpfs"}), []string{"mount: look at /dev/null/x", "not a directory"}},
		{"file mount on a folder", func(w *world) { w.plan.Mounts[1].Target = "/usr" }, []string{"mount: attach /usr", "invalid argument"}},
		{"folder mount on a file", mount(Mount{Target: "/etc/hosts", Fstype: "tmpfs"}), []string{"mount: attach /etc/hosts", "invalid argument"}},
		{"mount point in a read-only tree", mount(Mount{Target: "/usr/no-such-folder", Fstype: "tmpfs"}), []string{"mount: make /usr/no-such-folder", "read-only file system"}},
		{"mount upon a link to itself", func(w *world) {
			w.plan.Links = append(w.plan.Links, Link{"/loop", "loop"})
			w.plan.Mounts = append(w.plan.Mounts, Mount{Target: "/loop/x", Fstype: "tmpfs"})
		}, []string{"mount: look at /loop/x", "too many levels"}},
		{"pinned file that was not passed", mount(Mount{Target: "/usr/bin/pinned", FD: 900, IsFile: true}), []string{"mount: make /usr/bin/pinned"}},
		{"descriptor that is not open", mount(Mount{Target: "/etc/hosts", FD: 900, IsFile: true}), []string{"mount: attach /etc/hosts", "bad file descriptor"}},
		{"descriptor that is no mount", func(w *world) {
			w.plan.Mounts = append(w.plan.Mounts, Mount{Target: "/data", FD: w.pass(nullFile(t))})
		}, []string{"mount: attach /data", "invalid argument"}},
		{"mount attached twice", func(w *world) { w.plan.Mounts = append(w.plan.Mounts, w.plan.Mounts[0]) }, []string{"mount: attach /usr", "bad file descriptor"}},
		{"bind of nothing", mount(Mount{Target: "/data", Bind: "/no-such-path"}), []string{"mount: open_tree /no-such-path", "no such file"}},
		{"unknown file system", mount(Mount{Target: "/data", Fstype: "nosuchfs"}), []string{"mount: fsopen nosuchfs", "no such device"}},
		{"unknown option", mount(Mount{Target: "/data", Fstype: "tmpfs", Data: "size=1m,nosuchoption=1"}), []string{"mount: tmpfs option nosuchoption=1", "invalid argument"}},
		{"bad value of an option", mount(Mount{Target: "/data", Fstype: "tmpfs", Data: "size=lots"}), []string{"mount: tmpfs option size=lots", "invalid argument"}},
		{"unknown attribute", mount(Mount{Target: "/data", Bind: "/usr", Set: 1 << 40}), []string{"mount: attributes of /data", "invalid argument"}},

		{"user namespace that is none", func(w *world) {
			box, err := program("sharness-box")
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(box)
			if err != nil {
				t.Fatal(err)
			}
			w.plan.Inside, w.plan.Box = &Inside{Userns: w.pass(nullFile(t)), UID: domainID, GID: domainID}, w.pass(f)
		}, []string{"enter user namespace: errno 22"}},
		{"program for the user namespace that is none", func(w *world) {
			w.plan.Inside, w.plan.Box = &Inside{Userns: w.pass(nullFile(t)), UID: domainID, GID: domainID}, w.pass(nullFile(t))
		}, []string{"start second stage: ", "permission denied"}},

		{"protected root that is gone", func(w *world) {
			w.plan.Protected = &Protected{Root: "/gone", Entries: []ProtectedEntry{{Rel: []byte("x")}}}
		}, []string{"protect: open /gone", "no such file"}},
		{"protected entry that is gone", func(w *world) {
			w.plan.Protected = &Protected{Root: "/tmp", Entries: []ProtectedEntry{{Rel: []byte(".git")}}}
		}, []string{`protect: ".git" was there`}},
		{"protected entry of another kind", func(w *world) {
			w.plan.Protected = &Protected{Root: "/usr", Entries: []ProtectedEntry{{Rel: []byte("bin"), Kind: "file", ReadOnly: true}}}
		}, []string{`protect "bin": it was a file and is a dir`}},
		{"protected entry that climbs out", func(w *world) {
			w.plan.Protected = &Protected{Root: "/tmp", Entries: []ProtectedEntry{{Rel: []byte("../usr"), Kind: "dir", ReadOnly: true}}}
		}, []string{`protect "../usr"`, "invalid cross-device link"}},

		{"sysctl that does not exist", func(w *world) { w.plan.Sysctls = []Sysctl{{"vm/no_such_sysctl", "1"}} }, []string{"sysctl: write vm/no_such_sysctl", "no such file"}},
		{"sysctl with a bad value", func(w *world) { w.plan.Sysctls = []Sysctl{{"net/ipv4/ip_forward", "yes"}} }, []string{"sysctl: write net/ipv4/ip_forward", "invalid argument"}},
		{"sysctl that reads back otherwise", func(w *world) { w.plan.Sysctls = []Sysctl{{"net/ipv4/ip_forward", "01"}} }, []string{`sysctl: net/ipv4/ip_forward is "1" after "01" was written`}},
		{"sysctl without /proc", func(w *world) {
			w.plan.Mounts = w.plan.Mounts[:3]
			w.plan.Sysctls = []Sysctl{{"net/ipv4/ip_forward", "0"}}
		}, []string{"sysctl: write net/ipv4/ip_forward", "no such file"}},

		{"exact limit above what any process may have", func(w *world) {
			w.plan.Rlimits = []Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 1 << 40, Hard: 1 << 40, Exact: true}}
		}, []string{"rlimit 7 to 1099511627776", "operation not permitted"}},
		{"soft limit above the hard one", func(w *world) { w.plan.Rlimits = []Rlimit{{Resource: unix.RLIMIT_CORE, Soft: 2, Hard: 1, Exact: true}} }, []string{"rlimit 4 to 1", "invalid argument"}},
		{"unknown limit", func(w *world) { w.plan.Rlimits = []Rlimit{{Resource: 99}} }, []string{"rlimit 99", "invalid argument"}},

		{"stream that is not open", func(w *world) { w.plan.Stdio[1] = 900 }, []string{"start second stage", "bad file descriptor"}},
		{"terminal without devpts", func(w *world) {
			w.plan.Terminal = true
			w.plan.Mounts = w.plan.Mounts[:len(w.plan.Mounts)-1]
		}, []string{"terminal: open ptmx", "no such file"}},

		{"outer Landlock ABI above the kernel's", func(w *world) { w.plan.Outer.ABI = tooNew() }, []string{"landlock: outer domain: landlock: ABI "}},
		{"outer layer that restricts nothing", func(w *world) { w.plan.Outer = confine.Landlock{ABI: 1} }, []string{"landlock: outer domain: ", "restricts nothing"}},
		{"Landlock ABI above the kernel's", func(w *world) { w.plan.Landlock.ABI = tooNew() }, []string{"pid 1: landlock: ", "ABI "}},
		{"negative Landlock ABI", func(w *world) { w.plan.Landlock.ABI = -1 }, []string{"pid 1: landlock: ", "ABI -1"}},
		{"path rule for nothing", func(w *world) {
			w.plan.Landlock.Paths = append(w.plan.Landlock.Paths, confine.PathRule{Path: "/gone", Access: confine.AccessRead})
		}, []string{"landlock: ", "rule for /gone", "no such file"}},
		{"path rule without a right", func(w *world) { w.plan.Landlock.Paths[0].Access = 0 }, []string{"landlock: ", "rule for /", "no right"}},
		{"path rules without file rights", func(w *world) { w.plan.Landlock.FS = false }, []string{"landlock: ", "path rules in a layer that handles no file right"}},

		{"root as the target's id", func(w *world) { w.plan.UID = 0 }, []string{"pid 1: "}},
		{"root as the target's group", func(w *world) { w.plan.GID = 0 }, []string{"pid 1: "}},
		{"no id at all", func(w *world) { w.plan.UID = 1<<32 - 1 }, []string{"pid 1: "}},

		{"half a filter", func(w *world) { w.plan.Seccomp = append(w.plan.Seccomp, allowAll()[:7]) }, []string{"pid 1: seccomp: load filter", "7 bytes are no filter"}},
		{"empty filter", func(w *world) { w.plan.Seccomp = append(w.plan.Seccomp, []byte{}) }, []string{"pid 1: seccomp: load filter", "0 bytes are no filter"}},
		{"garbage for a filter", func(w *world) { w.plan.Seccomp = append(w.plan.Seccomp, []byte("garbage!")) }, []string{"pid 1: seccomp: load filter", "invalid argument"}},

		{"open door", func(w *world) { w.plan.Probe = []Check{{Door: "exec-memfd", Try: TryMemfd}} }, []string{"self-probe: door exec-memfd is open", "refusing to start"}},
		{"unknown attempt", func(w *world) { w.plan.Probe = []Check{{Door: "exec-memfd", Try: "no-such-try"}} }, []string{"self-probe: door exec-memfd is open", `unknown attempt "no-such-try"`}},

		{"folder outside", func(w *world) { w.plan.Cwd = "/usr" }, []string{"cwd /usr: outside /tmp: permission denied"}},
		{"folder by a link to the outside", func(w *world) { w.plan.Cwd = "/proc/self/root" }, []string{"cwd /proc/self/root: outside /tmp"}},
		{"folder that is gone", func(w *world) { w.plan.Cwd = "/tmp/gone" }, []string{"cwd /tmp/gone: no such file"}},
		{"program that is not in the view", func(w *world) { w.plan.Path = "/usr/bin/no-such-program" }, []string{"exec /usr/bin/no-such-program: no such file"}},
		{"program without a rule", func(w *world) { w.plan.Path = "/etc/hosts" }, []string{"exec /etc/hosts: permission denied"}},
		{"folder as program", func(w *world) { w.plan.Path = "/usr" }, []string{"exec /usr: permission denied"}},
		{"no program", func(w *world) { w.plan.Path = "" }, []string{"exec : no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "path rules without file rights" {
				kerneltest.RequireLandlock(t, 4) // without network rights there is nothing left
			}
			w := mustWorld(t, "/usr/bin/touch", "/tmp/ran")
			c.edit(w)
			wantSentence(t, launch(t, w), c.want)
		})
	}
}

func nullFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantSentence wants the stage's one message, and its end.
func wantSentence(t *testing.T, d *domain, want []string) {
	t.Helper()
	m := d.next(MsgError)
	if !strings.HasPrefix(m.Text, want[0]) || strings.ContainsAny(m.Text, "\n\x00") || len(m.Text) > 300 {
		t.Errorf("want one sentence that begins with %q, got %q", want[0], m.Text)
	}
	for _, part := range want[1:] {
		if !strings.Contains(m.Text, part) {
			t.Errorf("want %q in it, got %q", part, m.Text)
		}
	}
	if m, _, err := Receive(d.status); err != io.EOF {
		t.Errorf("want nothing after it, got %+v, %v", m, err)
	}
	if ws := d.wait(); ws.ExitStatus() != 125 {
		t.Errorf("want exit status 125, got %v", ws)
	}
	if words, err := io.ReadAll(d.stderr); err != nil || len(words) > 0 {
		t.Errorf("want nothing on stderr, got %q, %v", words, err)
	}
}

func TestPlanThatIsNoneComesHomeAsOneSentence(t *testing.T) {
	for name, data := range map[string]string{
		"empty": "", "garbage": "garbage", "unknown key": `{"kind":"command","no_such_key":1}`, "two plans": `{"request":-1}{"request":-1}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := mustWorld(t, "/usr/bin/true")
			wantSentence(t, launchRaw(t, w, []byte(data)), []string{"plan: "})
		})
	}
}

func TestTerminalWaitsForTheSupervisorsWord(t *testing.T) {
	t.Run("another order", func(t *testing.T) {
		w := mustWorld(t, "/usr/bin/true")
		w.plan.Terminal, w.plan.Stdio[0] = true, StdioTerminal
		d := launch(t, w)
		d.next(MsgTerminal)
		d.tell(Message{Type: MsgContinue})
		wantSentence(t, d, []string{"terminal: order 17 instead of MsgDressed"})
	})
	t.Run("half an order", func(t *testing.T) {
		w := mustWorld(t, "/usr/bin/true")
		w.plan.Terminal, w.plan.Stdio[0] = true, StdioTerminal
		d := launch(t, w)
		d.next(MsgTerminal)
		send(t, d.status, head(MsgDressed, 0, 0)[:5])
		wantSentence(t, d, []string{"status: order of 5 bytes"})
	})
	t.Run("nobody there", func(t *testing.T) {
		w := mustWorld(t, "/usr/bin/true")
		w.plan.Terminal, w.plan.Stdio[0] = true, StdioTerminal
		d := launch(t, w)
		d.next(MsgTerminal)
		if err := unix.Shutdown(d.status, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		wantSentence(t, d, []string{"EOF"})
	})
	t.Run("in front of no terminal", func(t *testing.T) {
		w := mustWorld(t, "/usr/bin/true")
		w.plan.Terminal, w.plan.Front = true, true
		d := launch(t, w)
		d.next(MsgTerminal)
		d.tell(Message{Type: MsgDressed})
		wantSentence(t, d, []string{"start second stage: in front of a terminal"})
	})
}
