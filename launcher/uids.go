package launcher

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Ranges of kernel ids. No entry of the user database may exist for one that is used.
const (
	firstAgentUID  = 1900000000 // one per manifest, recorded in the registry
	firstSlotUID   = 1900100000 // one per running command
	slotBlock      = 256        // slots of one manifest: commands of different agents never share an id
	agentUIDs      = 100000 / slotBlock
	firstHelperUID = 1900200000 // one per manifest and helper process
	toOwner        = 400000     // from an orchestrator's or a slot's to that of the owner of its user namespaces
)

// Helper processes of a session, in the order of their ids.
const (
	helperBashd = iota
	helperRelay
	helperAgent
	helpers
)

func helperUID(agentUID, helper int) int {
	return firstHelperUID + (agentUID-firstAgentUID)*helpers + helper
}

func slotUID(agentUID, slot int) int {
	return firstSlotUID + (agentUID-firstAgentUID)*slotBlock + slot
}

// ownerUID is who owns the user namespaces of a uid. Nobody ever has it: whoever does, outside, has every capability inside
// (user_namespaces(7)), and could become root there, which is the host's.
func ownerUID(uid int) int { return uid + toOwner }

// registryPath records which manifest has which id, so that no two ever share one.
const registryPath = "/var/lib/sharness/uids"

// agentUID returns the id of the manifest with the given name. The first time it chooses one, which record then
// allocates: a session that is refused in between takes none. The host's lock is held.
func agentUID(name string) (uid int, record func() error, err error) {
	data, err := os.ReadFile(registryPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, nil, fmt.Errorf("uid registry: %w", err)
	}
	taken := map[int]bool{}
	line := 0
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		line++
		id, owner, ok := strings.Cut(s.Text(), " ")
		n, err := strconv.Atoi(id)
		if !ok || err != nil || n < firstAgentUID || n >= firstAgentUID+agentUIDs {
			return 0, nil, fmt.Errorf("uid registry: %s:%d: %q is not UID NAME", registryPath, line, s.Text())
		}
		if owner == name {
			return n, func() error { return nil }, nil
		}
		taken[n] = true
	}
	for n := firstAgentUID; n < ProofUID; n++ {
		if taken[n] || exists(n) {
			continue
		}
		data = fmt.Appendf(data, "%d %s\n", n, name)
		return n, func() error {
			if err := os.MkdirAll(filepath.Dir(registryPath), 0o711); err != nil {
				return fmt.Errorf("uid registry: %w", err)
			}
			if err := writeFileAtomic(registryPath, data, 0o600); err != nil {
				return fmt.Errorf("uid registry: %w", err)
			}
			return nil
		}, nil
	}
	return 0, nil, fmt.Errorf("uid registry: all %d ids are taken; remove lines of manifests that are gone from %s", agentUIDs-1, registryPath)
}

// exists asks the user database, so that an id that a directory service hands out is not used either.
func exists(uid int) bool {
	_, uerr := user.LookupId(strconv.Itoa(uid))
	_, gerr := user.LookupGroupId(strconv.Itoa(uid))
	return uerr == nil || gerr == nil
}

// unfinished is how the name of a file ends that is written beside another.
const unfinished = ".new"

// writeFileAtomic writes beside, syncs and renames, so that a reader sees the old file or the new one. The host's lock is
// held: what lies beside was left by one that was killed.
func writeFileAtomic(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := errors.Join(f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
