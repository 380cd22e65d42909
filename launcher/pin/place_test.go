package pin

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// shown is how a folder of the workspace is shown elsewhere.
type shown struct {
	Base string // of all that follows
	How  string
	File string // which is checked
}

// shownChild mounts in a namespace of its own and says what CheckOwner does.
func shownChild(input json.RawMessage) (any, error) {
	var s shown
	if err := json.Unmarshal(input, &s); err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(s.Base, name) }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	var err error
	switch s.How {
	case "bind":
		err = unix.Mount(in("ws/tool"), in("opt"), "", unix.MS_BIND, "")
	case "bind of a bind":
		if err = unix.Mount(in("ws/tool"), in("other"), "", unix.MS_BIND, ""); err == nil {
			err = unix.Mount(in("other/deep"), in("opt"), "", unix.MS_BIND, "")
		}
	case "another folder":
		err = unix.Mount(in("tools"), in("opt"), "", unix.MS_BIND, "")
	case "workspace that is a mount":
		err = unix.Mount(in("ws"), in("ws"), "", unix.MS_BIND, "")
	case "overlay":
		// No overlay lies upon one: a container's tests lie there.
		if err = unix.Mount("tmpfs", in("other"), "tmpfs", 0, ""); err == nil {
			err = os.MkdirAll(in("other/ws/tool/deep"), 0o755)
		}
		if err == nil {
			err = os.WriteFile(in("other/ws/tool/deep/bin"), nil, 0o755)
		}
		if err == nil {
			err = unix.Mount("overlay", in("opt"), "overlay", unix.MS_RDONLY, "lowerdir="+in("other/ws/tool")+":"+in("tools"))
		}
	}
	if err != nil {
		return nil, err
	}
	tree := in("ws")
	if s.How == "overlay" {
		tree = in("other/ws")
	}
	if err := CheckOwner(in(s.File), tree); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// A developer's machine shows a folder of a workspace at a second place; a command writes it by the first.
func TestFileThatAMountShowsFromTheWorkspaceIsNotPinned(t *testing.T) {
	kerneltest.RequireRoot(t)
	base := rootFolder(t)
	for _, dir := range []string{"ws/tool/deep", "opt", "other", "tools/deep"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"ws/tool/deep/bin", "tools/deep/bin"} {
		write(t, filepath.Join(base, file), "x", 0o755)
	}
	for _, c := range []struct {
		how, file string
		refused   bool
	}{
		{"bind", "opt/deep/bin", true},
		{"bind of a bind", "opt/bin", true},
		{"another folder", "opt/deep/bin", false},
		{"workspace that is a mount", "tools/deep/bin", false},
		{"workspace that is a mount", "ws/tool/deep/bin", true},
		{"overlay", "opt/deep/bin", true},
	} {
		var got string
		kerneltest.Child{Name: "shown", Input: shown{base, c.how, c.file}, Reply: &got, Setup: func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		}}.Run(t)
		if refused := strings.Contains(got, "where the session can write"); refused != c.refused || !refused && got != "" {
			t.Errorf("%s, %s: got %q, want it refused: %v", c.how, c.file, got, c.refused)
		}
	}
}

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]kerneltest.Func{"shown": shownChild})
}
