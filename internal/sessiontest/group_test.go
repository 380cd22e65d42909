package sessiontest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Groups of the folders here: the user is a member of the first alone.
const (
	memberGroup = 54321
	otherGroup  = 54322
)

// withUser gives sharness, in a mount namespace of its own, a user database in which the owner of the workspace has a
// name and a group besides the first. The host's is not touched.
func (s *site) withUser(cmd *exec.Cmd) {
	s.t.Helper()
	for file, line := range map[string]string{
		"passwd": fmt.Sprintf("sessiontest:x:%d:%d::/nonexistent:/bin/sh\n", userID, userID),
		"group":  fmt.Sprintf("sessiontest:x:%d:\nteam:x:%d:sessiontest\n", userID, memberGroup),
	} {
		data, err := os.ReadFile("/etc/" + file)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.base, file), append(data, line...), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	script := fmt.Sprintf("mount --bind %[1]s/passwd /etc/passwd && mount --bind %[1]s/group /etc/group && exec \"$@\"", s.base)
	cmd.Args = append([]string{"unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/usr/bin/unshare"
}

// folderOf makes a folder whose files take its group.
func (s *site) folderOf(name string, gid int) {
	s.t.Helper()
	path := filepath.Join(s.workspace, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chown(path, userID, gid); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o775|os.ModeSetgid); err != nil {
		s.t.Fatal(err)
	}
}

func TestSetgidFolderTakesFilesInGroupsOfTheUserAlone(t *testing.T) {
	s := newSite(t, nil)
	s.folderOf("member", memberGroup)
	s.folderOf("other", otherGroup)
	for _, who := range []struct{ name, prefix, suffix string }{
		{"command", "/run/sharness/bin/sharness-bash -c '", "'"},
		{"orchestrator", "", ""},
	} {
		t.Run(who.name, func(t *testing.T) {
			s := *s
			s.t = t
			script := who.prefix + fmt.Sprintf(`echo x > member/by-%[1]s; echo member $?; echo y >> member/by-%[1]s; echo x > other/by-%[1]s; echo other $?`, who.name) + who.suffix
			x := s.sharness("enforce", "--", "bash", "-c", script)
			s.withUser(x.cmd)
			var out bytes.Buffer
			x.cmd.Stdout = &out
			x.start()
			x.wait(time.Minute)
			if want := "member 0\nother 1\n"; out.String() != want {
				t.Errorf("got %q, want %q\n%s", out.String(), want, x.stderr)
			}
			// What lies on disk with an id that the mount does not map is not written to (inode_permission in fs/namei.c).
			if !strings.Contains(x.stderr.String(), "Permission denied") {
				t.Errorf("said %q, want EACCES", x.stderr)
			}
			fi, err := os.Lstat(filepath.Join(s.workspace, "member", "by-"+who.name))
			if err != nil {
				t.Fatal(err)
			}
			if st := fi.Sys().(*syscall.Stat_t); st.Uid != userID || st.Gid != memberGroup {
				t.Errorf("the file is %d:%d, want %d:%d", st.Uid, st.Gid, userID, memberGroup)
			}
		})
	}
}
