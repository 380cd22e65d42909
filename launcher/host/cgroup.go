package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/launcher/mountinfo"
)

// CgroupMode is how the hierarchies are mounted.
type CgroupMode string

// The layouts. Hybrid has version 1 hierarchies and a unified one beside them.
const (
	CgroupNone    CgroupMode = "none"
	CgroupV1      CgroupMode = "v1"
	CgroupHybrid  CgroupMode = "hybrid"
	CgroupUnified CgroupMode = "unified"
)

// Cgroup is the layout, and where the controllers are that limits need.
type Cgroup struct {
	Mode        CgroupMode            `json:"mode"`
	Unified     string                `json:"unified,omitempty"` // mount point of cgroup2
	Own         string                `json:"own,omitempty"`     // our path in the unified hierarchy
	Controllers map[string]Controller `json:"controllers"`       // cpu, memory, pids; absent when the kernel or host has none
}

// Controller is one controller on the hierarchy that holds it.
type Controller struct {
	Version  int    `json:"version"`
	Mount    string `json:"mount"`
	Own      string `json:"own"` // our path below Mount
	Writable bool   `json:"writable"`
}

var wantedControllers = []string{"cpu", "memory", "pids"}

func readCgroup(mounts []mountinfo.Mount) (Cgroup, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return Cgroup{Mode: CgroupNone, Controllers: map[string]Controller{}}, nil
	}
	if err != nil {
		return Cgroup{}, err
	}
	return layout(mounts, string(own), func(root string) string { return readWord(filepath.Join(root, "cgroup.controllers")) },
		func(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }), nil
}

// layout decides from what was read; controllers returns the unified hierarchy's list.
func layout(mounts []mountinfo.Mount, own string, controllers func(root string) string, writable func(dir string) bool) Cgroup {
	paths := map[string]string{} // controller, or "" for the unified hierarchy, to our path
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, name := range strings.Split(parts[1], ",") {
			paths[name] = parts[2]
		}
	}
	c := Cgroup{Mode: CgroupNone, Controllers: map[string]Controller{}}
	v1 := false
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup2":
			if c.Unified != "" {
				continue
			}
			c.Unified, c.Own = m.Point, paths[""]
			list := strings.Fields(controllers(m.Point))
			for _, name := range wantedControllers {
				if slices.Contains(list, name) {
					c.Controllers[name] = Controller{Version: 2, Mount: m.Point, Own: c.Own, Writable: writable(m.Point)}
				}
			}
		case "cgroup":
			v1 = true
			for _, name := range wantedControllers {
				if slices.Contains(m.SuperOption, name) {
					c.Controllers[name] = Controller{Version: 1, Mount: m.Point, Own: paths[name], Writable: writable(m.Point)}
				}
			}
		}
	}
	switch {
	case v1 && c.Unified != "":
		c.Mode = CgroupHybrid
	case v1:
		c.Mode = CgroupV1
	case c.Unified != "":
		c.Mode = CgroupUnified
	}
	return c
}

// ProbeGroup begins the name of a group that is made to look at, at the root of the unified hierarchy; the id of the process that
// made it follows, and a "-". One whose process is gone is left over.
const ProbeGroup = "sharness-probe-"

// probeCgroupKill makes a group, looks for its cgroup.kill (Linux 5.14) and removes it: the root has no such file, and a
// hybrid host may have no other group to look in.
func probeCgroupKill(c Cgroup, privileged bool) Trial {
	if c.Unified == "" {
		return Trial{State: No, Cause: "no unified hierarchy is mounted"}
	}
	dir, err := os.MkdirTemp(c.Unified, fmt.Sprintf("%s%d-", ProbeGroup, os.Getpid()))
	if err != nil {
		return outcome(err, privileged)
	}
	t := fileOutcome(unix.Access(filepath.Join(dir, "cgroup.kill"), unix.F_OK))
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return Trial{State: No, Cause: "remove " + dir + ": " + err.Error()}
	}
	return t
}
