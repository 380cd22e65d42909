package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// quarantineRoot holds what was taken out of workspaces, a folder per session.
const quarantineRoot = "/var/lib/sharness/quarantine"

// makeQuarantine makes a session's folder of the quarantine, and locks it as long as the session lives. A sharness in a container
// that has this /var/lib and another /run takes another lock of the host's, and removes what is empty and nobody has locked: then
// it is made again.
func makeQuarantine(dir string, u User) (lock *os.File, err error) {
	for range 100 {
		err = errors.Join(os.MkdirAll(filepath.Dir(dir), 0o711), os.Mkdir(dir, 0o700))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if lock, err = lockDir(dir); err == nil && lock != nil {
			if isAt(lock, dir) {
				if err := os.Lchown(dir, u.UID, u.GID); err != nil {
					os.Remove(dir)
					lock.Close()
					return nil, err
				}
				return lock, nil
			}
			lock.Close()
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.Join(err, fmt.Errorf("%s: another process holds or removes it again and again; see who with lslocks", dir))
}
