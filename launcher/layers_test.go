package launcher

import (
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/manifest"
)

// alone says what each layer does against a door when it is the only one left beside the pid namespace and an ordinary
// id without privilege, which every run here keeps. A layer that is missing in a row leaves the door as open as it is
// without any. Else the text is one of
//
//	"ERRNO…"                  closes every attempt, with one of these answers ("-": no errno tells of it)
//	"ERRNO… but ATTEMPT…"     closes all but these
//	"only ATTEMPT…: ERRNO…"   closes these and no other
//
// Attempts are those that are open without any layer. Some of them depend on the host's programs and modules; of a
// named one that is not open there, nothing is asked. Measured with Landlock ABI 6 and vm.memfd_noexec=2.
type alone struct {
	door string
	by   map[sidedoor.Layer]string
}

const (
	ll, vw, sec = sidedoor.Landlock, sidedoor.View, sidedoor.Seccomp
	mem, nw, mt = sidedoor.Memfd, sidedoor.Net, sidedoor.Mount
)

type by = map[sidedoor.Layer]string

var aloneStatic = []alone{
	{"exec-direct", by{ll: "EACCES", vw: "EACCES"}},
	{"exec-workspace", by{ll: "EACCES", vw: "EACCES",
		mt: "only state-elf state-script state-script-listed state-o-tmpfile run-elf run-script run-script-listed run-o-tmpfile: ENOENT EROFS"}},
	{"exec-ldso", by{ll: "EACCES", vw: "EACCES", sec: "only memfd memfd-noexec-seal: ENOSYS"}},
	// memfd_noexec keeps a memfd from being executed, not from being mapped.
	{"exec-memfd", by{sec: "ENOSYS", mem: "EACCES but map secret"}},
	{"exec-scm", by{ll: "EACCES"}},
	{"exec-inject", by{vw: "EPERM", ll: "only map-state: EACCES", mt: "only map-state: ENOENT"}},
	// 1<<32|SYS_execve is execve to the kernel and to the filter alike; which file it starts is for the others to say.
	{"exec-abi", by{sec: "- ENOSYS EPERM but high-bits-execve", ll: "only int80-execve high-bits-execve: EACCES", vw: "only int80-execve high-bits-execve: EACCES"}},
	{"exec-interp", by{ll: "EACCES but memfd", vw: "only exec: EACCES", sec: "only memfd: ENOSYS", nw: "only connect: ECONNREFUSED", mt: "only read: ENOENT"}},
	{"exec-swap", by{ll: "EACCES but owned-chmod", mt: "ENOENT"}},
	// Of these two the pid namespace, which is always there, leaves the parent, which is pid 1, and the process itself.
	{"sig", by{ll: "EPERM"}},
	{"ptrace", by{sec: "EPERM"}},
	// Both are needed: the scope says nothing of limits, the filter nothing of signals.
	{"pid1", by{ll: "EPERM but prlimit", sec: "only prlimit: ENOSYS"}},
	// noexec cannot be lifted in a user namespace from a mount of another.
	{"ns", by{sec: "ENOSYS EPERM", ll: "only user-then-mount user-then-remount: EPERM", vw: "only user-then-remount: EPERM", mt: "only user-then-remount: EPERM"}},
	{"file-suid", by{sec: "ENOSYS EPERM"}},
	{"setid", by{ll: "EACCES but status", vw: "EACCES but status", sec: "only status: -"}},
	{"kernel", by{sec: "ENOSYS EPERM"}},
	{"net-host", by{ll: "EACCES", nw: "ECONNREFUSED"}},
	// A socket that reaches nobody can still be made.
	{"net-mptcp", by{sec: "EPERM", nw: "ECONNREFUSED but socket"}},
	{"net-tfo", by{sec: "EPERM", nw: "EOPNOTSUPP ENOTSUP ECONNREFUSED", ll: "only connect-option: EACCES"}},
	{"net-listen", by{nw: "-"}},
	{"net-udp", by{nw: "EAGAIN ECONNREFUSED but udplite udplite6", sec: "only udplite udplite6: EPERM"}},
	{"net-family", by{sec: "EPERM"}},
	{"unix-path", by{mt: "- ENOENT"}},
	{"unix-abstract", by{ll: "EPERM", nw: "ECONNREFUSED"}},
	// What is planted in a workspace that may be written, protected paths close and none of these.
	{"file-config", by{ll: "only owned proc-self-root: EACCES", mt: "only owned proc-self-root: ENOENT"}},
	{"file-git", by{}},
	{"file-meta", by{}},
	{"file-lease", by{sec: "EPERM"}},
	{"file-fifo", by{ll: "EACCES", sec: "only whiteout: EPERM"}},
	{"file-link", by{ll: "EACCES EXDEV", mt: "ENOENT"}},
	{"core-helper", by{sec: "ENOSYS but limit"}}, // RLIMIT_CORE itself is the stage's
	{"file-secret", by{ll: "EACCES but stat read-proc-keys", mt: "- ENOENT"}},
	{"file-proc", by{ll: "- EACCES but memfd-noexec", mem: "only memfd-noexec: -", mt: "- EROFS but memfd-noexec"}},
	{"tty", by{sec: "EPERM"}},
	{"orch-bomb", by{sec: "EPERM"}},                // the bait names no limit, so that the probe tries none
	{"log-inject", by{ll: "EACCES", vw: "EACCES"}}, // its names go out by attempts to execute them
}

// A listed loader is where the exec view and the filter need each other: the loader may be executed, and what it maps is
// no execve.
var aloneDynamic = []alone{
	{"exec-ldso", by{vw: "- EACCES but memfd memfd-noexec-seal", sec: "only memfd memfd-noexec-seal: ENOSYS", ll: "only lib-ld-musl-x86_64.so.1: EACCES"}},
	{"exec-inject", by{vw: "- EPERM", ll: "only map-state: EACCES", mt: "only map-state: ENOENT"}},
}

// With a workspace that the manifest lets the orchestrator only read.
var aloneReadOnly = []alone{
	{"file-meta", by{mt: "EROFS", ll: "only truncate: EACCES"}}, // Landlock guards neither modes nor times
	{"file-git", by{mt: "EROFS", ll: "EACCES"}},
	{"file-config", by{mt: "ENOENT EROFS", ll: "EACCES"}},
}

// notAlone are doors of which no attempt is open without layers, and why.
var notAlone = map[string]string{
	"inherit-fd":  "the stage hands three descriptors on, whatever the plan says",
	"inherit-env": "the environment is the plan's own",
	"exec-env":    "the environment is the plan's own",
	"cg-escape":   "an ordinary id may write no cgroup, and the probe sees no hierarchy",
	"srv-bytes":   "no bash-server runs",
	"srv-fd":      "no bash-server runs",
}

var aloneLayers = []sidedoor.Layer{ll, vw, sec, mem, nw, mt}

func TestEachLayerAloneClosesWhatTheTableSays(t *testing.T) {
	t.Run("static", func(t *testing.T) {
		x := newLayersSite(t, "sharness-probe")
		file, private := x.siteBait()
		x.compare(t, aloneStatic, func(layers ...sidedoor.Layer) []attempt.Result {
			found := slices.DeleteFunc(x.attack(layers, "--bait", file), func(r attempt.Result) bool { return r.Door == "pid1" })
			return append(found, x.attack(layers, "--bait", private, "--door", "pid1")...)
		})
	})
	t.Run("dynamic", func(t *testing.T) {
		x := newLayersSite(t, "sharness-probe-dynamic")
		x.compareDoors(t, aloneDynamic)
	})
	t.Run("workspace read-only", func(t *testing.T) {
		x := newLayersSite(t, "sharness-probe")
		x.s.Manifest.Workspace.Orchestrator = manifest.AccessRead
		x.compareDoors(t, aloneReadOnly)
	})
}

// compareDoors attacks the doors of the rows and no other.
func (x *layersSite) compareDoors(t *testing.T, rows []alone) {
	file, _ := x.siteBait()
	x.compare(t, rows, func(layers ...sidedoor.Layer) []attempt.Result {
		var found []attempt.Result
		for _, r := range rows {
			found = append(found, x.attack(layers, "--bait", file, "--door", r.door)...)
		}
		return found
	})
}

// compare runs the attack without layers, which is the control of every row, and with each layer alone.
func (x *layersSite) compare(t *testing.T, rows []alone, attack func(...sidedoor.Layer) []attempt.Result) {
	control := attack()
	open := map[string][]string{}
	for _, r := range control {
		open[r.Door] = slices.Concat(open[r.Door], opened(r))
	}
	for door, ids := range open {
		switch row := slices.ContainsFunc(rows, func(a alone) bool { return a.door == door }); {
		case row && len(ids) == 0:
			t.Errorf("%s: nothing is open without layers: the row says nothing", door)
		case !row && notAlone[door] == "":
			t.Errorf("%s: no row, and no word on why", door)
		case !row && len(ids) > 0:
			t.Errorf("%s: %v open without layers, though %s", door, ids, notAlone[door])
		}
	}
	for _, row := range rows {
		if _, ok := open[row.door]; !ok {
			t.Errorf("%s: no attempt", row.door)
		}
	}
	for _, layer := range aloneLayers {
		results := map[string]attempt.Result{}
		for _, r := range attack(layer) {
			results[r.ID] = r
		}
		for _, row := range rows {
			row.check(t, layer, open[row.door], results)
		}
	}
}

func opened(r attempt.Result) []string {
	if r.Verdict == attempt.Open {
		return []string{r.ID}
	}
	return nil
}

func (a alone) check(t *testing.T, layer sidedoor.Layer, ids []string, results map[string]attempt.Result) {
	t.Helper()
	errnos, closes := a.parse(layer)
	for _, id := range ids {
		r := results[id]
		_, variant, _ := strings.Cut(id, "/")
		errno := r.Errno
		if errno == "" {
			errno = "-"
		}
		switch shut := r.Verdict == attempt.Closed || r.Verdict == attempt.Absent; {
		case !shut && r.Verdict != attempt.Open:
			t.Errorf("%s alone, %s: the attempt broke: %q %s", layer, id, r.Verdict, r.Detail)
		case shut != closes(variant):
			t.Errorf("%s alone, %s: %s (%s), the table says otherwise", layer, id, r.Verdict, r.Detail)
		case shut && !slices.Contains(errnos, errno):
			t.Errorf("%s alone, %s: %s, want one of %v", layer, id, errno, errnos)
		}
	}
}

// parse says which variants the layer closes, and with which answers.
func (a alone) parse(layer sidedoor.Layer) (errnos []string, closes func(variant string) bool) {
	text, ok := a.by[layer]
	if !ok {
		return nil, func(string) bool { return false }
	}
	if only, ok := strings.CutPrefix(text, "only "); ok {
		variants, answers, _ := strings.Cut(only, ": ")
		return strings.Fields(answers), func(v string) bool { return slices.Contains(strings.Fields(variants), v) }
	}
	answers, but, _ := strings.Cut(text, " but ")
	return strings.Fields(answers), func(v string) bool { return !slices.Contains(strings.Fields(but), v) }
}
