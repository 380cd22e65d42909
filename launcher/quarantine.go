package launcher

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// quarantineRoot holds what was taken out of workspaces, a folder per session.
const quarantineRoot = "/var/lib/sharness/quarantine"

// quarantine is a session's part of it. While the session lives only root enters dir: what lies in kept starts programs
// in the shell of a user who goes there, and in his git when a link or a .git file of the session leads there.
type quarantine struct {
	dir  string
	kept string   // in dir; the user's, for sharness-watch, with a name that no process of the session can know
	live *os.File // the lock of dir: whoever has another /run knows by it that the session lives
}

// makeQuarantine makes a session's folder of the quarantine, and locks it as long as the session lives. A sharness in a container
// that has this /var/lib and another /run takes another lock of the host's, and removes what is empty and nobody has locked: then
// it is made again.
func makeQuarantine(dir string, u User) (q quarantine, err error) {
	q = quarantine{dir: dir, kept: filepath.Join(dir, rand.Text())}
	for range 100 {
		err = errors.Join(os.MkdirAll(filepath.Dir(dir), 0o711), os.Mkdir(dir, 0o700))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
			return q, err
		}
		if q.live, err = lockDir(dir); err == nil && q.live != nil {
			if isAt(q.live, dir) {
				if err := errors.Join(os.Mkdir(q.kept, 0o700), os.Lchown(q.kept, u.UID, u.GID)); err != nil {
					removeQuarantine(dir)
					q.live.Close()
					return q, err
				}
				return q, nil
			}
			q.live.Close()
		}
		time.Sleep(time.Millisecond)
	}
	return q, errors.Join(err, fmt.Errorf("%s: another process holds or removes it again and again; see who with lslocks", dir))
}

// close ends it: it goes when it is empty, and is the user's when there is nothing in it but files, as sharness-watch leaves it.
func (q *quarantine) close() error {
	defer q.live.Close()
	removeQuarantine(q.dir)
	entries, err := os.ReadDir(q.kept)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil && !e.Type().IsRegular() {
			err = fmt.Errorf("%s is no file, and may start programs when you go there: it was not packed, and only root can read it", e.Name())
		}
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(q.kept, &st)
	}
	if err == nil {
		err = os.Lchown(q.dir, int(st.Uid), int(st.Gid))
	}
	if err != nil {
		return fmt.Errorf("quarantine %s: %w", q.kept, err)
	}
	return nil
}

// removeQuarantine removes a session's folder of the quarantine, which stays when something lies in it.
func removeQuarantine(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		_ = unix.Rmdir(filepath.Join(dir, e.Name()))
	}
	return errors.Join(err, os.Remove(dir))
}
