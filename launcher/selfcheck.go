package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/stage"
)

// What the self-probe cannot try from inside of a domain is read back here, before the domain starts.

// bounds reads back that the group's processes and memory are bounded as the manifest says: a group without its limits
// looks like one with them until something goes wrong.
func (c *cgroup) bounds(pids int, memory uint64) error {
	read := func(names ...string) uint64 {
		for _, dir := range c.dirs {
			for _, name := range names {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if n, nerr := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil && nerr == nil {
					return n
				}
			}
		}
		return 0 // "max", or no such file
	}
	for _, b := range []struct {
		what  string
		want  uint64
		names []string
	}{{"processes", uint64(pids), []string{"pids.max"}}, {"memory", memory, []string{"memory.max", "memory.limit_in_bytes"}}} {
		// The kernel rounds memory down to whole pages.
		if got := read(b.names...); b.want > 0 && (got == 0 || got > b.want) {
			return fmt.Errorf("self-probe: door orch-bomb is open: %s of the orchestrator's group are not bounded at %d; refusing to start", b.what, b.want)
		}
	}
	return nil
}

// checkEnviron looks at a finished environment once more: each name has to be sharness's own, passed or set.
func (s *Session) checkEnviron(env []string) error {
	own := []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR"}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		_, set := s.Manifest.Env.Set[name]
		if !set && !slices.Contains(own, name) && !passes(name, s.Manifest.Env.Pass) {
			return fmt.Errorf("self-probe: door inherit-env is open: %s is in the environment, and the manifest does not pass it; refusing to start", name)
		}
	}
	return nil
}

// protectedCheck is the self-probe of one name that must be read-only, where the workspace has any.
func (s *Session) protectedCheck(set *protect.Set) []stage.Check {
	for _, m := range protect.Mounts(set, "") {
		if m.ReadOnly {
			return []stage.Check{{Door: "file-git", Try: stage.TryReadOnly, Path: filepath.Join(s.Workspace.Name(), m.Rel)}}
		}
	}
	return nil
}
