package protect

import (
	"errors"
	"fmt"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// An access control list says who may write beyond a folder's mode, and a default one what new files and folders in it get:
// where there is one, the umask of whoever makes them counts no more (acl(5)). What the user makes later, a .git among it,
// would be writable for others.
const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// listed says whether a folder has a list, of either kind. One that cannot be asked has none that we could take away.
func (w *Watcher) listed(rel string) bool {
	fd, err := w.open(rel, unix.O_PATH)
	if err != nil {
		return false // not there, or a link
	}
	defer unix.Close(fd)
	return hasACL(fd, accessACL) || hasACL(fd, defaultACL)
}

func hasACL(fd int, name string) bool {
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), name, nil)
	return err == nil && n > 0
}

// dropACL takes away the lists of a folder that had none when the session began. A later watcher of a session does not know.
func (w *Watcher) dropACL(rel string) {
	if w.acls == nil || w.acls[rel] || !w.listed(rel) {
		return
	}
	ev := event.Event{Type: event.FileQuarantined, Door: w.door(rel), Layer: Layer, Target: w.target(rel),
		Detail: "a folder got an access control list, by which others may write what is made in it: the list was taken away"}
	if err := w.removeACL(rel); err != nil {
		w.failed++
		ev.Type, ev.Detail = event.LayerOpen, fmt.Sprintf("a folder got an access control list, by which others may write what is made in it, and keeps it: %v", err)
	} else {
		w.taken++
	}
	w.report(ev, "acl "+first(rel))
}

func (w *Watcher) removeACL(rel string) error {
	fd, err := w.open(rel, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, name := range []string{accessACL, defaultACL} {
		err := unix.Removexattr(fmt.Sprintf("/proc/self/fd/%d", fd), name)
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
	}
	return nil
}
