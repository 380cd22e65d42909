package launcher

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sharness/sharness/internal/kerneltest"
	"golang.org/x/sys/unix"
)

// Who owns a namespace has every capability in it, from outside, and could become root there, which is the host's; and what
// is used up inside counts for the owner too. So it is an id that nobody has: not root's, and not that of the domain.
func TestNobodyOutsideEntersAUserNamespace(t *testing.T) {
	kerneltest.RequireRoot(t)
	const uid = 1900080000
	holder, err := filepath.Abs("../bin/sharness-box")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := newUserNamespace(holder, ownerUID(uid), withOne(4244, uid), withOne(4245, uid))
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	defer ns.Close()
	var owner uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, ns.Fd(), unix.NS_GET_OWNER_UID, uintptr(unsafe.Pointer(&owner))); errno != 0 {
		t.Fatal(errno)
	}
	if int(owner) != ownerUID(uid) {
		t.Errorf("it belongs to %d, want %d", owner, ownerUID(uid))
	}
	for id, allowed := range map[uint32]bool{0: true, uid: false, 4244: false} {
		cmd := exec.Command("nsenter", "--user=/proc/self/fd/3", "/bin/true")
		cmd.ExtraFiles = []*os.File{ns}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		if out, err := cmd.CombinedOutput(); (err == nil) != allowed {
			t.Errorf("uid %d enters: %v, %s, want %v", id, err, out, allowed)
		}
	}
}

func TestAccountWithAnIDOfOursIsRefused(t *testing.T) {
	kerneltest.RequireRoot(t)
	s := &Session{User: User{UID: 4244, GID: 4244}}
	ns, err := s.namespacesOf(0) // root's, which every host has
	if err == nil {
		ns.close()
		t.Fatal("the id of an account was taken")
	}
	if !strings.Contains(err.Error(), "uid 0 is sharness's own and belongs to an account") {
		t.Error(err)
	}
}

func TestUserNamespaceThatCannotBeMadeSaysWhy(t *testing.T) {
	kerneltest.RequireRoot(t)
	holder, err := filepath.Abs("../bin/sharness-box")
	if err != nil {
		t.Fatal(err)
	}
	twice := []syscall.SysProcIDMap{{ContainerID: 1, HostID: 1, Size: 1}, {ContainerID: 1, HostID: 2, Size: 1}}
	if ns, err := newUserNamespace(holder, 1900080000, twice, twice); err == nil {
		ns.Close()
		t.Error("a map that names an id twice was taken")
	}
	if ns, err := newUserNamespace("/usr/bin/false", 1900080000, nil, nil); err == nil {
		ns.Close()
		t.Error("a holder that ended had a namespace")
	}
}

func TestEveryIDIsSeenButTheTwo(t *testing.T) {
	const last = math.MaxUint32 - 1
	for _, c := range []ids{{1000, 1900100000}, {1900100000, 1000}, {1, 1900100000}, {1900100000, 1900100001}, {5, 5}, {last, 1900100000}, {1900100000, last}} {
		inside, outside := c.uid, c.gid
		m := withOne(inside, outside)
		seen := func(id int) (out []int) {
			for _, e := range m {
				if id >= e.HostID && id < e.HostID+e.Size {
					out = append(out, e.ContainerID+id-e.HostID)
				}
			}
			return out
		}
		for _, id := range []int{0, 1, 2, 5, 999, 1000, 1001, 65534, 1900099999, 1900100000, 1900100001, 1900100002, last - 1, last} {
			got := seen(id)
			switch {
			case id == outside:
				if len(got) != 1 || got[0] != inside {
					t.Errorf("%d as %d: %d is seen as %v", outside, inside, id, got)
				}
			case id == inside:
				if len(got) != 0 {
					t.Errorf("%d as %d: the other %d is seen as %v, want nobody", outside, inside, id, got)
				}
			case len(got) != 1 || got[0] != id:
				t.Errorf("%d as %d: %d is seen as %v", outside, inside, id, got)
			}
		}
		for i, e := range m {
			if e.Size < 1 || e.HostID+e.Size-1 > last || e.ContainerID+e.Size-1 > last {
				t.Errorf("%d as %d: entry %d is %+v", outside, inside, i, e)
			}
		}
	}
}

func TestNobodySeesHimselfAsRoot(t *testing.T) {
	for u, want := range map[ids]ids{{1000, 100}: {1000, 100}, {0, 0}: {1900000007, 1900000007}, {1000, 0}: {1000, 1900000007}} {
		if got := (&Session{UID: 1900000007, User: User{UID: u.uid, GID: u.gid}}).shown(); got != want {
			t.Errorf("user %v: got %v, want %v", u, got, want)
		}
	}
}
