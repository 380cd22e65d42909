package agent

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
)

func init() { children["more"] = moreChild }

// moreChild makes refused calls of which one path is not all there is to say.
func moreChild(input json.RawMessage) (any, error) {
	lists, err := decodeInput[[][]string](input)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	for i, list := range lists {
		execArgs(nthBash(i), list)
	}
	cwd := uintptr(1<<64 + unix.AT_FDCWD)
	_ = raw(unix.SYS_RENAMEAT2, cwd, ptr("/etc/hostname"), cwd, ptr("/etc/other"), 0)
	_ = raw(unix.SYS_LINKAT, cwd, ptr("/etc/hostname"), cwd, ptr("/etc/other"), 0)
	return nil, nil
}

// nthBash is a name of its own for each call: repetitions are folded.
func nthBash(i int) string { return strings.Repeat("/", i) + "/bin/bash" }

func execArgs(path string, args []string) {
	var list []*byte
	for _, a := range args {
		text := append([]byte(a), 0) // written: a page that was never touched cannot be read, and an empty string may lie on one
		list = append(list, &text[0])
	}
	list = append(list, nil)
	_ = raw(unix.SYS_EXECVE, ptr(path), uintptr(unsafe.Pointer(&list[0])), 0)
	runtime.KeepAlive(list)
}

func TestArgumentsAndOldNamesOfRefusedCallsAreShown(t *testing.T) {
	kerneltest.RequireLandlock(t, 6)
	long, many := strings.Repeat("a", 200), strings.Split(strings.Repeat("x ", 20)+"x", " ")
	lists := [][]string{{"bash", "-c", "", "rm -rf /"}, {"bash", long, "behind"}, many, {}}
	events := refusedMore(t, Options{Files: true, Argv: true}, lists)
	for i, want := range []struct {
		args      []string
		truncated bool
	}{
		{lists[0], false},
		{[]string{"bash", long[:maxArg] + event.Cut, "behind"}, true},
		{many[:16], true},
		{nil, false},
	} {
		path := nthBash(i)
		at := slices.IndexFunc(events, func(e seen) bool { return e.Target != nil && e.Target.Asked == path })
		if at < 0 {
			t.Errorf("%s: no event", path)
			continue
		}
		got := events[at]
		if cut, _ := got.Data["argv_truncated"].(bool); !slices.Equal(got.Argv(), want.args) || cut != want.truncated {
			t.Errorf("%s: got %q, cut %v, want %q, cut %v", path, got.Argv(), cut, want.args, want.truncated)
		}
	}
	for _, call := range []string{"renameat2", "linkat"} {
		at := slices.IndexFunc(events, func(e seen) bool { return e.Syscall == call })
		if at < 0 || events[at].Target.Asked != "/etc/other" || events[at].Target.Old != "/etc/hostname" {
			t.Errorf("%s: got %+v, want both names", call, events)
		}
	}
}

func TestArgumentsAreNotReadUnlessTheyAreAskedFor(t *testing.T) {
	kerneltest.RequireLandlock(t, 6)
	events := refusedMore(t, Options{}, [][]string{{"bash", "-c", "token"}})
	if len(events) != 1 || events[0].Data["argv"] != nil {
		t.Errorf("got %+v, want one event without arguments", events)
	}
}

func refusedMore(t *testing.T, o Options, lists [][]string) []seen {
	g := newGroup(t, "")
	r := traced(t, g, o, policy, func() {
		kerneltest.Child{Name: "more", Input: lists, Setup: g.into(t)}.Run(t)
	})
	r.whole(t)
	return r.denials()
}

// setidChild would make files, with a set-id bit and without.
func setidChild(json.RawMessage) (any, error) {
	if err := enter(); err != nil {
		return nil, err
	}
	cwd := uintptr(1<<64 + unix.AT_FDCWD)
	_ = raw(unix.SYS_OPENAT, cwd, ptr("/etc/set-uid"), unix.O_CREAT|unix.O_WRONLY, 0o4755)
	_ = raw(unix.SYS_OPENAT, cwd, ptr("/etc"), unix.O_TMPFILE|unix.O_WRONLY, 0o2755)
	_ = raw(unix.SYS_OPENAT, cwd, ptr("/etc/plain"), unix.O_CREAT|unix.O_WRONLY, 0o755)
	_ = raw(unix.SYS_OPENAT, cwd, ptr("/etc/shadow"), unix.O_RDONLY, 0o4755) // nobody's mode
	return nil, nil
}

func TestFilesWithASetIDBitAreReportedWhetherOrNotPathsAre(t *testing.T) {
	g := newGroup(t, "")
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "setid", Setup: g.into(t)}.Run(t)
	})
	r.whole(t)
	var got []string
	for _, e := range r.denials() {
		got = append(got, e.Door+" "+e.Target.Asked)
	}
	if want := []string{"file-suid /etc/set-uid", "file-suid /etc"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
