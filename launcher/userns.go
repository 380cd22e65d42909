package launcher

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// ids are a user's and a group's.
type ids struct{ uid, gid int }

// userNamespaces are the two of one id of the kernel's. Both live as long as their descriptors.
type userNamespaces struct {
	// Through disk the user's folders are attached: what is the user's there looks as if it were the id's, and what the
	// id makes belongs to the user. The user's other groups keep their numbers, so that a set-group-id folder of such a
	// group can be written to; the id is a member of none of them.
	disk *os.File
	// Within inside the id's processes live, who see themselves as the user (shown), and all others' files as they are. To
	// a program that remembers whose a file was, as git does for each file of a repository, nothing differs then between
	// two commands, or between a command and the user.
	inside *os.File
}

func (ns userNamespaces) close() {
	for _, f := range []*os.File{ns.disk, ns.inside} {
		if f != nil {
			f.Close()
		}
	}
}

// shown returns the ids that processes of the session see as theirs: the user's. Of root it is the domain's instead: no
// program is to think that it is root.
func (s *Session) shown() ids {
	out := ids{s.User.UID, s.User.GID}
	if out.uid == 0 {
		out.uid = s.UID
	}
	if out.gid == 0 {
		out.gid = s.UID
	}
	return out
}

// namespacesOf returns the user namespaces of a uid of this session, made once.
func (s *Session) namespacesOf(uid int) (ns userNamespaces, err error) {
	s.userns.Lock()
	defer s.userns.Unlock()
	if ns, ok := s.userns.byUID[uid]; ok {
		return ns, nil
	}
	for _, id := range []int{uid, ownerUID(uid)} {
		if exists(id) {
			return ns, fmt.Errorf("uid %d is sharness's own and belongs to an account or a group of this host; give that another id, or this session's manifest another name", id)
		}
	}
	holder, err := Helper("sharness-box")
	if err != nil {
		return ns, err
	}
	if ns.disk, err = s.User.disk(holder, uid); err != nil {
		return ns, err
	}
	shown := s.shown()
	if ns.inside, err = newUserNamespace(holder, ownerUID(uid), withOne(shown.uid, uid), withOne(shown.gid, uid)); err != nil {
		ns.close()
		return ns, err
	}
	if s.userns.byUID == nil {
		s.userns.byUID = map[int]userNamespaces{}
	}
	s.userns.byUID[uid] = ns
	return ns, nil
}

// within has the orchestrator live in its user namespace.
func (s *Session) within(p *stage.Plan, v *view) error {
	ns, err := s.namespacesOf(s.UID)
	if err != nil {
		return err
	}
	box, err := openHelper("sharness-box")
	if err != nil {
		return err
	}
	id := s.shown()
	p.Inside, p.Box = &stage.Inside{Userns: v.pass(dup(ns.inside)), UID: uint32(id.uid), GID: uint32(id.gid)}, v.pass(box)
	return nil
}

// disk returns a user namespace that maps the user's ids on disk to id.
func (u User) disk(holder string, id int) (*os.File, error) {
	gids := []syscall.SysProcIDMap{{ContainerID: u.GID, HostID: id, Size: 1}}
	for _, g := range u.Groups {
		gids = append(gids, syscall.SysProcIDMap{ContainerID: g, HostID: g, Size: 1})
	}
	return newUserNamespace(holder, ownerUID(id), []syscall.SysProcIDMap{{ContainerID: u.UID, HostID: id, Size: 1}}, gids)
}

// withOne maps every id to itself, but inside to outside. Nothing is outside inside, and the outer inside is nobody there.
func withOne(inside, outside int) []syscall.SysProcIDMap {
	m := []syscall.SysProcIDMap{{ContainerID: inside, HostID: outside, Size: 1}}
	next := 0
	for _, id := range []int{min(inside, outside), max(inside, outside), math.MaxUint32} { // the last is no id
		if id > next {
			m = append(m, syscall.SysProcIDMap{ContainerID: next, HostID: next, Size: id - next})
		}
		next = id + 1
	}
	return m
}

// newUserNamespace returns a user namespace that belongs to owner.
func newUserNamespace(holder string, owner int, uids, gids []syscall.SysProcIDMap) (_ *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("user namespace: %w (is user.max_user_namespaces 0, or are all used? sharness doctor says)", err)
		}
	}()
	cmd := exec.Command(holder, "hold", strconv.Itoa(owner))
	cmd.Env, cmd.SysProcAttr = []string{}, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ns, err := mapped(cmd.Process.Pid, out, uids, gids)
	in.Close()
	if werr := cmd.Wait(); werr != nil { // why it did not get there
		var exit *exec.ExitError
		if errors.As(werr, &exit) && exit.ExitCode() > 0 {
			werr = syscall.Errno(exit.ExitCode())
		}
		if ns != nil {
			ns.Close()
		}
		return nil, werr
	}
	return ns, err
}

// mapped gives the namespace of a process its maps, once the process says that it stands there.
func mapped(pid int, out io.Reader, uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		return nil, err
	}
	for name, m := range map[string][]syscall.SysProcIDMap{"uid_map": uids, "gid_map": gids} {
		var lines []byte
		for _, e := range m {
			lines = fmt.Appendf(lines, "%d %d %d\n", e.ContainerID, e.HostID, e.Size)
		}
		// The kernel takes a map in one write, and none after it (user_namespaces(7)).
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, name), os.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(lines)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}
