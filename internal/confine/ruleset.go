package confine

import (
	"errors"
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Handled is what a layer handles at its ABI, as landlock_create_ruleset(2) wants it: for whoever applies a layer
// without this package. All are zero without a layer.
func (l Landlock) Handled() (fs, net, scoped uint64, err error) {
	if l.ABI == 0 {
		return 0, 0, 0, nil
	}
	config, err := l.config()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("landlock: %w", err)
	}
	return uint64(config.HandledAccessFS), uint64(config.HandledAccessNet), uint64(config.Scoped), nil
}

// Rights is what of a rule applies to a folder or a file, 0 for nothing.
func (l Landlock) Rights(p PathRule, dir bool) (uint64, error) {
	fs, _, _, err := l.Handled()
	if err != nil {
		return 0, err
	}
	access := p.Access & fs
	if !dir {
		access &= uint64(accessOfFiles)
	}
	if access == 0 {
		return 0, fmt.Errorf("landlock: rule for %s: no right of %#x applies", p.Path, p.Access)
	}
	return access, nil
}

// Ruleset makes the layer and puts nobody into it: whoever gets the descriptor may, as often as wanted. It is -1 without
// a layer. Rules of ports have no place in it.
func (l Landlock) Ruleset() (int, error) {
	if l.ABI == 0 {
		return -1, nil
	}
	if len(l.TCP) > 0 {
		return -1, errors.New("landlock: rules of ports in a ruleset")
	}
	fs, net, scoped, err := l.Handled()
	if err != nil {
		return -1, err
	}
	rs, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: fs, HandledAccessNet: net, Scoped: scoped}, 0)
	if err != nil {
		return -1, fmt.Errorf("landlock: create ruleset: %w", err)
	}
	for _, p := range l.Paths {
		if err := l.add(rs, p); err != nil {
			unix.Close(rs)
			return -1, err
		}
	}
	return rs, nil
}

func (l Landlock) add(rs int, p PathRule) error {
	fd, err := unix.Open(p.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: open %s: %w", p.Path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: look at %s: %w", p.Path, err)
	}
	access, err := l.Rights(p, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return err
	}
	if err := ll.LandlockAddPathBeneathRule(rs, &ll.PathBeneathAttr{AllowedAccess: access, ParentFd: fd}, 0); err != nil {
		return fmt.Errorf("landlock: add rule for %s: %w", p.Path, err)
	}
	return nil
}
