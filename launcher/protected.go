package launcher

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// protectedRoot holds what earlier sessions found in each workspace (protect.Options.Before), so that a command cannot
// hide a repository from the next session. It is root's: neither the user's tools nor a view can write there.
const protectedRoot = "/var/lib/sharness/protected"

// record is where the repositories of one workspace are kept: by its path, and by its device and inode. A folder that is
// moved is known by the second, one whose device number changes with each boot (btrfs, NFS) by the first. A record of
// something else that had the same name does no harm: what is not there any more is forgotten.
type record struct {
	dir   string
	files [2]string
}

func openRecord(dir string, workspace *os.File) (*record, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("protected paths: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("protected paths: lstat %s: %w", dir, err)
	}
	if st.Uid != 0 || st.Mode&(unix.S_IFMT|0o022) != unix.S_IFDIR {
		return nil, refusef("protected paths: %s is not a folder that only root can change", dir)
	}
	if err := unix.Fstat(int(workspace.Fd()), &st); err != nil {
		return nil, fmt.Errorf("protected paths: fstat %s: %w", workspace.Name(), err)
	}
	return &record{dir, [2]string{
		filepath.Join(dir, fmt.Sprintf("path-%x.json", sha256.Sum256([]byte(workspace.Name())))),
		filepath.Join(dir, fmt.Sprintf("inode-%x-%d.json", st.Dev, st.Ino)),
	}}, nil
}

// read joins the two files. A file that cannot be read is an error: to go on without it may leave a repository open.
func (r *record) read() (*protect.Set, error) {
	set, seen := &protect.Set{}, map[protect.Repo]bool{}
	for _, name := range r.files {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("protected paths of earlier sessions: %w", err)
		}
		one, err := protect.Decode(f)
		f.Close()
		if err != nil {
			return nil, refusef("protected paths of earlier sessions, %s: %w; remove the file to forget them", name, err)
		}
		for _, repo := range one.Repos {
			if !seen[repo] {
				seen[repo] = true
				set.Repos = append(set.Repos, repo)
			}
		}
	}
	return set, nil
}

// write replaces both files with what this session found, which holds all of read that is still there. The repository at
// the top is found by its name in any case: where there is no other, nothing is kept.
//
// The host's lock is held: what another session removes when it is empty, the folder, may have gone since openRecord.
func (r *record) write(set *protect.Set) error {
	var repos []protect.Repo
	for _, repo := range set.Repos {
		if repo != (protect.Repo{Rel: "", GitDir: ".git"}) {
			repos = append(repos, repo)
		}
	}
	var b bytes.Buffer
	if err := (&protect.Set{Repos: repos}).Encode(&b); err != nil {
		return err
	}
	for _, name := range r.files {
		if repos == nil {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("protected paths: forget: %w", err)
			}
			continue
		}
		if err := errors.Join(os.MkdirAll(r.dir, 0o700), writeFileAtomic(name, b.Bytes(), 0o600)); err != nil {
			return fmt.Errorf("protected paths: keep for the next session: %w", err)
		}
	}
	return nil
}
