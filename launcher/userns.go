package launcher

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// User is the person whose files an agent works on: the caller behind sudo, or the owner of the workspace.
type User struct {
	UID, GID int
	Groups   []int // supplementary, without GID
	Name     string
	Home     string
}

// idmap returns a user namespace that maps the user's ids on disk to the domain's id in the view: files of the user
// look as if they were the domain's, and what the domain makes belongs to the user. The user's other groups keep their
// numbers, so that a set-group-id folder of such a group can be written to; the domain is a member of none of them.
//
// The namespace lives as long as the returned descriptor.
func idmap(holder string, u User, id int) (*os.File, error) {
	cmd := exec.Command(holder, "hold")
	stdin, w := io.Pipe()
	cmd.Stdin = stdin
	defer w.Close()
	gids := []syscall.SysProcIDMap{{ContainerID: u.GID, HostID: id, Size: 1}}
	for _, g := range u.Groups {
		gids = append(gids, syscall.SysProcIDMap{ContainerID: g, HostID: g, Size: 1})
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: u.UID, HostID: id, Size: 1}},
		GidMappings:                gids,
		GidMappingsEnableSetgroups: true,
		Pdeathsig:                  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("user namespace for idmapped mounts: %w (is user.max_user_namespaces 0? sharness doctor says)", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	w.Close()
	if werr := cmd.Wait(); err == nil && werr != nil {
		ns.Close()
		return nil, fmt.Errorf("user namespace for idmapped mounts: %w", werr)
	}
	if err != nil {
		return nil, fmt.Errorf("user namespace for idmapped mounts: %w", err)
	}
	return ns, nil
}
